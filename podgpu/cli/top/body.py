"""The body of the screen: the table of GPUs, the components or the help. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.status_page.display_text import amount, span, unresolved_text
from pipeline.status_page.status_document import (
    ErrorStatus,
    GpuStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
)
from podgpu.cli.terminal_text import fit, terminal_safe
from podgpu.cli.top.columns import cells, lined
from podgpu.cli.top.device_rows import rows
from podgpu.cli.top.ui_state import State, Tab

_HELP: Final = (
    "q           quit",
    "i u m w p   sort by index, utilisation, memory, power (watts), pod",
    "/           filter by words, such as gpu3 or free; Enter applies it, Esc cancels",
    "f           fold the MIG instances into their GPU, and unfold them",
    "a           show all holders of a shared GPU and full names, or at most three",
    "s, Tab      show sources and sinks, or the GPUs again",
    "j k, arrows, Page Up and Down, space, g and G, Home and End   scroll",
    "?, h        this help; any key closes it",
    "",
    "USE of a MIG instance is the part of the time in which its engine was busy.",
    "A dash is an unknown value. HELD BY is the namespace, the pod and the",
    "container. FOR is the time since the holder got the device. A + means at least:",
    "podgpu saw the holder then for the first time.",
)

MOST_ABOVE: Final = 2
"""Most lines above the body that show what its first line belongs to: a GPU and an instance."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the body.

    Attributes:
        text: the text.
        above: indexes, in the body, of the lines that it belongs to: that of the GPU, and the
            first one of the instance.
    """

    text: str
    above: tuple[int, ...] = ()


def body(status: StatusDocument, state: State, width: int) -> list[Line]:
    """Return all lines of the body, for a terminal of the given width."""
    if state.tab is Tab.HELP:
        return [Line(text) for text in _HELP]
    if state.tab is Tab.COMPONENTS:
        return [Line(text) for text in components(status, width)]
    return table(status, state, width)


def table(status: StatusDocument, state: State, width: int) -> list[Line]:
    """Return the lines of the table of GPUs."""
    found = list(_rows(status, state, width))
    if found:
        return found
    if status.gpus is None:
        return [Line("No source has reported GPUs yet.")]
    return [Line("No row matches the filter." if status.gpus else "This node has no GPU.")]


def _rows(status: StatusDocument, state: State, width: int) -> Iterator[Line]:
    at = gpu = 0
    for row in rows(status, state):
        first = at
        if isinstance(row.device, GpuStatus):
            gpu = at
        for line in cells(row, status.time, width, whole=state.whole):
            above = (gpu, first) if at > first > gpu else (gpu,) if at > gpu else ()
            yield Line(lined(line, width), above)
            at += 1


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
