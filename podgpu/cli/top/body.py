"""The body of the screen: the table of GPUs, the components or the help. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipeline.status_page.status_document import GpuStatus, StatusDocument
from podgpu.cli.top.columns import cells, lined
from podgpu.cli.top.component_rows import components
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
