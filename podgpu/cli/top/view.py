"""Renders the screen as lines of text. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pipeline.status_page.display_text import amount, span, summary, unresolved_text
from pipeline.status_page.problem_text import listed
from pipeline.status_page.status_document import (
    ErrorStatus,
    GpuStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
)
from podgpu.cli.terminal_text import fit, terminal_safe
from podgpu.cli.top.columns import cells, heading, lined, rows
from podgpu.cli.top.ui_state import Sort, State, Tab

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
"""Maximum number of lines that are shown above the body for its first line: GPU and instance."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the body.

    Attributes:
        text: the text.
        above: indexes in the body of the lines to which this line belongs: the line of the GPU, and
            the first line of the instance. Empty for the line of a GPU.
    """

    text: str
    above: tuple[int, ...] = ()


def body(status: StatusDocument, state: State, width: int) -> list[Line]:
    """Return all lines of the body of the screen, also those that do not fit on the screen."""
    if state.tab is Tab.HELP:
        return [Line(text) for text in _HELP]
    if state.tab is Tab.COMPONENTS:
        return [Line(text) for text in components(status, width)]
    return table(status, state, width)


def table(status: StatusDocument, state: State, width: int) -> list[Line]:
    """Return the lines of the table of GPUs; a line with the reason if there is nothing to show."""
    found = list(_rows(status, state, width))
    if found:
        return found
    if status.gpus is None:
        return [Line("No source has reported GPUs yet.")]
    return [Line("No row matches the filter." if status.gpus else "This node has no GPU.")]


def _rows(status: StatusDocument, state: State, width: int) -> Iterator[Line]:
    at = gpu = 0
    for device in rows(status, state):
        first = at
        if isinstance(device, GpuStatus):
            gpu = at
        for line in cells(device, state, status.time, width):
            above = (gpu, first) if at > first > gpu else (gpu,) if at > gpu else ()
            yield Line(lined(line, width), above)
            at += 1


_SOURCES = (("SOURCE", 18), ("KIND", 13), ("STATE", 9), ("REPORTED", 10), ("CONFIRMED", 10))
_SINKS = (("SINK", 18), ("KIND", 13), ("STATE", 9), ("QUEUED", 10), ("LOST", 10))


def components(status: StatusDocument, width: int) -> list[str]:
    """Return the lines about sources and sinks. A component's error is below its line.

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
    """Yield the error of a component, in as many lines as needed; nothing without an error."""
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


class Style(Enum):
    """How a line is highlighted. There are no colours."""

    PLAIN = "plain"
    BOLD = "bold"
    REVERSE = "reverse"


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The status of the daemon and its age.

    Attributes:
        status: the last successful response.
        age_seconds: age of that response.
        error: text of the error of the last query; empty if the query succeeded.
    """

    status: StatusDocument
    age_seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of the screen.

    Attributes:
        lines: one for each line of the terminal, each as wide as the terminal.
        offset: index of the first line of the body that is shown; at most that of the last page.
        page: number of lines to scroll by a page.
    """

    lines: tuple[tuple[str, Style], ...]
    offset: int
    page: int


def frame(feed: DaemonStatus, state: State, width: int, height: int) -> Frame:
    """Return the content of the screen.

    Args:
        feed: the status of the daemon.
        state: what the user has selected.
        width: width of the terminal.
        height: height of the terminal.
    """
    whole = body(feed.status, state, width)
    time = f" {feed.status.time:%H:%M:%S} UTC"
    title = fit(f"{feed.status.node}: {summary(feed.status)}", width - len(time)) + time
    top = [(title, Style.REVERSE), (_second(feed), Style.BOLD)]
    if state.tab is Tab.GPUS:
        top.append((heading(width), Style.BOLD))
    room = max(height - len(top) - 1, 1)
    offset = min(state.offset, max(len(whole) - room, 0))
    above = _above(whole, offset, room)
    shown = [(line.text, Style.PLAIN) for line in whole[offset : offset + room]]
    shown[: len(above)] = [(text, Style.BOLD) for text in above]
    empty = [("", Style.PLAIN)] * (room - len(shown))
    last, first = offset + len(shown), offset + len(above) + 1
    bottom = (_bottom(state, first, last, len(whole)), Style.REVERSE)
    lines = [(fit(line, width), style) for line, style in [*top, *shown, *empty, bottom]]
    # A page leaves out the lines that may be covered, so that scrolling skips no line.
    page = room - MOST_ABOVE if room >= _MIN_ROWS else room
    # A terminal that is too small shows the top.
    return Frame(tuple(lines[:height]), offset, page)


_MIN_ROWS: Final = 6
"""Minimum number of lines of the body for which the first ones may be replaced by lines above."""


def _above(body: Sequence[Line], offset: int, room: int) -> list[str]:
    """Return the lines that replace the first lines of the body: GPU and instance of the first one.

    Nothing is replaced if these lines are visible, or if the body is too small.
    """
    if room < _MIN_ROWS:
        return []
    before: Sequence[int] = ()
    for covered in range(MOST_ABOVE + 1):
        # `covered` lines are replaced. To which lines does the line after them belong?
        first = offset + covered
        above = [at for at in body[first].above if at < first] if first < len(body) else []
        if len(above) <= covered:
            return [body[at].text for at in (*above, *before[len(above) : covered])]
        before = above
    return []


def _second(feed: DaemonStatus) -> str:
    if feed.error:
        return f"! no response for {span(feed.age_seconds)}: {feed.error}"
    if feed.status.waiting_for:
        return f"not ready: {feed.status.waiting_for}"
    found = listed(feed.status)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"!{more} {found[0].text}" if found else ""


def _bottom(state: State, first: int, last: int, count: int) -> str:
    if state.typing:
        return f"filter: {state.filter}_"
    words = ["? help", "q quit"]
    if state.tab is not Tab.GPUS:
        words.insert(0, state.tab.value)
    elif state.sort is not Sort.INDEX:
        words.append(f"by {state.sort.name.lower()}")
    if state.tab is Tab.GPUS and state.filter:
        words.append(f"filter: {state.filter}")
    if state.tab is Tab.GPUS and state.folded:
        words.append("folded")
    if first > 1 or last < count:
        words.append(f"lines {first} to {last} of {count}")
    return "   ".join(words)
