"""Renders the screen as lines of styled text. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.status_page.html.graphs import LEAST_STEPS
from pipeline.status_page.problem_text import listed
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.component_lines import component_lines
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.device_order import ordered
from podgpu.cli.top.device_rows import rows_of, steps_of
from podgpu.cli.top.help_text import help_lines
from podgpu.cli.top.narrow_layout import narrow_lines
from podgpu.cli.top.problem_lines import first_problems, problem_lines
from podgpu.cli.top.row import Kind
from podgpu.cli.top.screen_frame import footer, header
from podgpu.cli.top.styled_text import EMPTY, Line, Style, fitted, restyled, styled
from podgpu.cli.top.table_layout import LEAST, heading, layout_of, table_lines
from podgpu.cli.top.ui_state import State, View

MOST_ABOVE: Final = 2
"""Maximum number of lines that are shown above the body for its first line: GPU and instance."""

_MIN_ROWS: Final = 4
"""Minimum number of lines of the body for which the first ones may be replaced by lines above."""

_PROBLEMS_PART: Final = 0.4
"""Part of the lines that problems have at most. They share them with the GPUs."""


@dataclass(frozen=True, slots=True)
class BodyLine:
    """A line of the body.

    Attributes:
        line: the line.
        above: indexes in the body of the lines to which this line belongs: the line of the GPU, and
            the first line of the instance. Empty for the line of a GPU.
    """

    line: Line
    above: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of the screen.

    Attributes:
        lines: one for each line of the terminal, each as wide as the terminal.
        offset: index of the first line of the body that is shown; at most that of the last page.
        page: number of lines to scroll by a page.
    """

    lines: tuple[Line, ...]
    offset: int
    page: int


def frame(daemon: DaemonStatus, state: State, width: int, height: int) -> Frame:
    """Return the content of the screen.

    Args:
        daemon: the status of the daemon.
        state: what the user has selected.
        width: width of the terminal.
        height: height of the terminal.
    """
    status = daemon.status
    body = _body(status, state, width)
    # A terminal that is too small shows the first line, the body and the keys.
    top = header(daemon, width)[: max(height // 3, 1)]
    if state.view is View.OVERVIEW:
        left = max(height - len(top) - 1, 1)
        top += _problems(status, width, max(int(left * _PROBLEMS_PART), 1))
        top += device_heading(status, width)
    if daemon.is_stale:
        body = [BodyLine(restyled(one.line, Style.SOFT), one.above) for one in body]
    room = max(height - len(top) - 1, 1)
    offset = min(state.offset, max(len(body) - room, 0))
    above = _above(body, offset, room)
    shown = [each.line for each in body[offset : offset + room]]
    shown[: len(above)] = above
    empty = [EMPTY] * (room - len(shown))
    last, first = offset + len(shown), offset + len(above) + 1
    place = "" if first == 1 and last == len(body) else f"{first}-{last} of {len(body)}"
    lines = [*top, *shown, *empty][: max(height - 1, 0)]
    lines.append(footer(state, place, width))
    # A page leaves out the lines that may be covered, so that scrolling skips no line.
    page = room - MOST_ABOVE if room >= _MIN_ROWS else room
    return Frame(tuple(fitted(line, width) for line in lines[-height:]), offset, page)


def _problems(status: StatusDocument, width: int, room: int) -> list[Line]:
    found = listed(status)
    more = status.problems_left_out
    return first_problems(found, status.time, width, room, more) if found else []


def _body(status: StatusDocument, state: State, width: int) -> list[BodyLine]:
    """Return all lines of the body of the screen, also those that do not fit on the screen."""
    lines: list[Line]
    match state.view:
        case View.OVERVIEW:
            components = [BodyLine(line) for line in (EMPTY, *component_lines(status, width))]
            return [*device_lines(status, state, width), *components]
        case View.PROBLEMS:
            lines = problem_lines(listed(status), status.time, width, status.problems_left_out)
            lines = lines or [styled("No problem is known.")]
        case View.USAGE:
            # Imported only if it is needed: it takes as long as all the rest.
            from podgpu.cli.top.usage_lines import usage_lines

            lines = usage_lines(status, width)
        case View.COMPONENTS:
            lines = component_lines(status, width)
        case View.HELP:
            lines = help_lines(width)
    return [BodyLine(line) for line in lines]


def device_heading(status: StatusDocument, width: int, *, graphs: bool = True) -> list[Line]:
    """Return the heading of the table of GPUs; a narrow terminal has no table.

    Args:
        status: the status document.
        width: width of the terminal.
        graphs: whether there are graphs.
    """
    if width < LEAST:
        return []
    return [heading(layout_of(width, graphs=graphs), _time_of_graphs(status))]


def _time_of_graphs(status: StatusDocument) -> str:
    hours = [gpu.history for gpu in status.gpus or () if gpu.history is not None]
    if not hours:
        return ""
    seconds = max(steps_of(status), LEAST_STEPS) * hours[0].step_seconds
    return "last hour" if seconds >= 3600 else f"last {seconds // 60}m"


def device_lines(
    status: StatusDocument, state: State, width: int, *, graphs: bool = True
) -> list[BodyLine]:
    """Return the lines of GPUs; a line with the reason if there is nothing to show.

    Args:
        status: the status document.
        state: what the user has selected.
        width: width of the terminal.
        graphs: whether there are graphs.
    """
    found = list(_device_lines(status, state, width, graphs=graphs))
    if found:
        return found
    if status.gpus is None:
        return [BodyLine(styled("No source has reported GPUs yet."))]
    text = "No row matches the filter." if status.gpus else "This node has no GPU."
    return [BodyLine(styled(text))]


def _device_lines(
    status: StatusDocument, state: State, width: int, *, graphs: bool
) -> Iterator[BodyLine]:
    at = gpu_at = instance_at = 0
    steps = steps_of(status)
    for gpu, below in ordered(status, state):
        rows = list(rows_of(gpu, below, state, status.time, steps))
        if width < LEAST:
            lines = narrow_lines(rows, width)
        else:
            lines = table_lines(rows, layout_of(width, graphs=graphs), width)
        previous = None
        for row, line in lines:
            if row is not previous and row.kind is Kind.GPU:
                gpu_at = instance_at = at
            elif row is not previous and row.depth == 1:
                instance_at = at
            previous = row
            above = (gpu_at, instance_at) if at > instance_at > gpu_at else (gpu_at,)
            yield BodyLine(line, above if at > gpu_at else ())
            at += 1


def _above(body: Sequence[BodyLine], offset: int, room: int) -> list[Line]:
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
            found = [body[at].line for at in (*above, *before[len(above) : covered])]
            return [restyled(line, Style.STRONG) for line in found]
        before = above
    return []
