"""Sources and sinks as lines of text. Pure."""

from collections.abc import Iterator, Sequence

from pipeline.status_page.display_text import amount, span, unresolved_text
from pipeline.status_page.status_document import (
    ErrorStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
)
from podgpu.cli.terminal_text import fit, terminal_safe

_SOURCES = (("SOURCE", 18), ("KIND", 13), ("STATE", 9), ("REPORTED", 10), ("CONFIRMED", 10))
_SINKS = (("SINK", 18), ("KIND", 13), ("STATE", 9), ("QUEUED", 10), ("LOST", 10))


def components(status: StatusDocument, width: int) -> list[str]:
    """Return the lines. The error of a component is below its line.

    Args:
        status: the status document.
        width: width of the terminal.
    """
    lines = [_line([title for title, _ in _SOURCES], _SOURCES)]
    for source in status.sources:
        lines.append(_line(_source(source), _SOURCES))
        unresolved = unresolved_text(source.unresolved)
        lines += [f"    reports {unresolved}"] if unresolved else []
        lines += _error(source.error, width)
    lines += ["", _line([title for title, _ in _SINKS], _SINKS)]
    for sink in status.sinks:
        lines.append(_line(_sink(sink), _SINKS))
        lines += [f"    {_plain(sink.errors)} other errors"] if sink.errors else []
        lines += _error(sink.error, width)
    return lines


def _line(cells: Sequence[str], columns: Sequence[tuple[str, int]]) -> str:
    parts = [fit(cell, width) for cell, (_, width) in zip(cells, columns, strict=True)]
    return " ".join(parts).rstrip()


def _source(source: SourceStatus) -> list[str]:
    return [
        source.name,
        source.kind,
        source.state,
        _ago(source.age_seconds),
        _ago(source.confirmed_seconds) if source.confirmed_seconds is not None else "",
    ]


def _sink(sink: SinkStatus) -> list[str]:
    state = {True: "up", False: "down", None: "-"}[sink.up]
    if sink.up and sink.delivering is False:
        state = "stuck"
    elif sink.up and sink.queue_writable is False:
        state = "unwritten"
    counts = [count for count in (sink.dropped, sink.rejected) if count is not None]
    return [
        sink.name,
        sink.kind or "",
        state,
        "-" if sink.queued is None else _plain(sink.queued),
        _plain(sum(counts)) if counts else "-",
    ]


def _error(error: ErrorStatus | None, width: int) -> Iterator[str]:
    """Yield the whole error, in as many lines as needed."""
    if error is None:
        return
    age = "" if error.age_seconds is None else f" {span(error.age_seconds)} ago"
    over = ", resolved" if error.over else ""
    word = "warning" if error.over is None else "error"
    text = f"{word}{age}{over}: {terminal_safe(error.text)}"
    room = max(width - 4, 20)
    for start in range(0, len(text), room):
        yield f"    {text[start : start + room]}"


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{span(seconds)} ago"


def _plain(count: int) -> str:
    return amount(count).replace("\N{NO-BREAK SPACE}", " ")
