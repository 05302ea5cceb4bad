"""The help: what the keys do, and what the columns mean. Pure."""

from typing import Final

from podgpu.cli.terminal_text import wrapped
from podgpu.cli.top.styled_text import Line, Style, styled

_KEYS: Final = (
    ("q", "quit"),
    ("!", "all problems in full"),
    ("d", "usage of the last day and of four weeks, from a ledger"),
    ("s", "only sources and sinks"),
    ("Tab", "the next of these views; Esc goes back"),
    ("/", "filter by words: a namespace, a pod, gpu3, free; Enter applies it, Esc cancels"),
    ("i u m w p", "sort by index, busy time, memory, power (watts), pod"),
    ("x", "processes of each device"),
    ("a", "all holders of a shared GPU, with whole names; otherwise at most three"),
    ("f", "fold the MIG instances into their GPU, and unfold them"),
    ("e", "whole UUIDs, source and evidence of each holder, XID errors"),
    ("arrows, j k, Page Up and Down, space, g G", "scroll"),
    ("?", "this help; any key closes it"),
)

_NOTES: Final = (
    """The first line of a GPU shows the whole GPU. Below it are the containers that hold it, with
    what each of them uses itself.""",
    """BUSY of a GPU is the part of the time in which a program ran on it; of a MIG instance, in
    which its engine was busy; of a container, in which its own processes kept the device busy.
    41% ±4 is probably between 37 and 45%: the split of a shared device is a sample. A ~ means that
    its error is unknown.""",
    """Graphs show the last hour, or what podgpu has seen of it, the newest at the right. The graph
    before BUSY is full at 100%, the one before MEMORY at the whole memory, the one before POWER at
    the limit.""",
    """POWER of a container is the energy that it has used since it got the device.""",
    """FOR is the time since the holder got the device. A + means at least: podgpu saw the holder
    then for the first time.""",
    """A container that uses the device and does not hold it is called "not held".""",
    """A dash is an unknown value. The reason is below the device.""",
)

_KEY_WIDTH: Final = 11


def help_lines(width: int) -> list[Line]:
    """Return the lines of the help, wrapped to the width of the terminal."""
    lines: list[Line] = []
    for key, text in _KEYS:
        if len(key) < _KEY_WIDTH:
            first, *more = wrapped(text, max(width - _KEY_WIDTH, 2))
            lines.append(styled(key.ljust(_KEY_WIDTH), Style.STRONG) + styled(first))
            lines += (styled(" " * _KEY_WIDTH + part) for part in more)
        else:
            lines += (styled(part, Style.STRONG) for part in wrapped(key, max(width, 2)))
            lines.append(styled(" " * _KEY_WIDTH + text))
    for note in _NOTES:
        lines += [(), *(styled(part) for part in wrapped(" ".join(note.split()), max(width, 2)))]
    return lines
