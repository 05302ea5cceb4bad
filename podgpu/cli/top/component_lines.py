"""Lines about sources and sinks, each with its error. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.status_page.display_text import amount, span, unresolved_text
from pipeline.status_page.status_document import (
    ErrorStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
)
from podgpu.cli.terminal_text import fit, terminal_safe, wrapped
from podgpu.cli.top.styled_text import Line, Style, fitted, joined, restyled, styled

_SOURCES: Final = ("SOURCE", "KIND", "STATE", "REPORTED", "CONFIRMED")
_SINKS: Final = ("SINK", "KIND", "STATE", "QUEUED", "LOST")
_WIDTHS: Final = (18, 13, 9, 10, 10)
_NARROW: Final = sum(_WIDTHS) + len(_WIDTHS) - 1
"""Width below which the kind is omitted, and the name is as wide as the room that is left."""

_LEAST_NAME: Final = 6
_INDENT: Final = 4
_BAD: Final = frozenset({"down", "stuck", "unwritten"})


def component_lines(status: StatusDocument, width: int) -> list[Line]:
    """Return the lines about sources and sinks. A component's error is below its line.

    Args:
        status: the status document.
        width: width of the terminal.
    """
    lines = [_line(_SOURCES, width, Style.HEADING)]
    for source in status.sources:
        lines.append(_line(_source(source), width))
        unresolved = unresolved_text(source.unresolved)
        lines += _below(f"reports {unresolved}" if unresolved else "", width, Style.WARNING)
        lines += _error(source.error, width)
    lines += [(), _line(_SINKS, width, Style.HEADING)]
    for sink in status.sinks:
        lines.append(_line(_sink(sink), width))
        lines += _below(f"{_plain(sink.errors)} other errors" if sink.errors else "", width)
        lines += _error(sink.error, width)
    return lines


def _line(cells: Sequence[str], width: int, style: Style = Style.PLAIN) -> Line:
    name, kind, state, first, second = cells
    shown = [name, kind, state, first, second]
    widths = list(_WIDTHS)
    if width < _NARROW:
        shown = [name, state, first]
        widths = [max(width - 9 - 10 - 2, _LEAST_NAME), 9, 10]
    parts = [styled(fit(cell, room), style) for cell, room in zip(shown, widths, strict=True)]
    if state in _BAD:
        at = shown.index(state, 1)
        parts[at] = styled(fit(state, widths[at]), Style.CRITICAL)
    line = fitted(joined(parts), width)
    return restyled(line, style) if style is Style.HEADING else line


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


def _error(error: ErrorStatus | None, width: int) -> Iterator[Line]:
    """Yield the error of a component, in as many lines as needed; nothing without an error."""
    if error is None:
        return
    age = "" if error.age_seconds is None else f" {span(error.age_seconds)} ago"
    over = ", resolved" if error.over else ""
    word = "warning" if error.over is None else "error"
    style = Style.SOFT if error.over else Style.PLAIN
    yield from _below(f"{word}{age}{over}: {terminal_safe(error.text)}", width, style)


def _below(text: str, width: int, style: Style = Style.SOFT) -> Iterator[Line]:
    indent = min(_INDENT, max(width - 2, 0))
    for part in wrapped(text, max(width - indent, 2)):
        yield styled(" " * indent) + styled(part, style)


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{span(seconds)} ago"


def _plain(count: int) -> str:
    return amount(count).replace("\N{NO-BREAK SPACE}", " ")
