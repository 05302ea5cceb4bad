"""What the terminal shows. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pipeline.cli.top.columns import bar_of, cells, heading, lined
from pipeline.cli.top.components import components
from pipeline.cli.top.rows import rows
from pipeline.cli.top.state import Sort, State, Tab
from pipeline.cli.top.text import fit
from pipeline.status_page.document import StatusDocument
from pipeline.status_page.problems import problems, summary
from pipeline.status_page.words import span


class Style(Enum):
    """How a line stands out; there are no colours."""

    PLAIN = "plain"
    BOLD = "bold"
    REVERSE = "reverse"


@dataclass(frozen=True, slots=True)
class Feed:
    """What is known of the daemon.

    Attributes:
        status: the last good answer.
        age_seconds: of that answer.
        error: why the last question had none; empty if it had one.
    """

    status: StatusDocument
    age_seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown at one moment.

    Attributes:
        lines: as many as the terminal has, each as wide as it.
        offset: the first row that is shown, which there is.
        page: how many rows there is room for.
    """

    lines: tuple[tuple[str, Style], ...]
    offset: int
    page: int


_HELP: Final = (
    "q           quit",
    "i u m w p   sort by index, utilisation, memory, power (watts), pod",
    "/           filter by words, such as gpu3 or free; Enter keeps it, Esc drops it",
    "f           fold the MIG instances into their GPU, and unfold them",
    "a           all holders of a shared GPU, each on a line; else three at most",
    "s, Tab      sources and sinks, and back",
    "j k, arrows, Page Up and Down, space, g and G, Home and End   scroll",
    "?, h        this help; any key leads back",
    "",
    "USE of a MIG instance is the part of the time in which its engine was busy.",
    "A dash is a figure that nobody knows. HELD BY is the namespace, the pod and the",
    "container; FOR is for how long, with a + for how long at least: podgpu saw it",
    "then for the first time.",
)


def frame(feed: Feed, state: State, width: int, height: int) -> Frame:
    """Return what is shown.

    Args:
        feed: what is known of the daemon.
        state: what the user has chosen.
        width: columns of the terminal.
        height: lines of it.
    """
    top = [(_title(feed, width), Style.REVERSE), (_second(feed), Style.BOLD)]
    body = _body(feed, state, width)
    if state.tab is Tab.GPUS:
        top.append((heading(width), Style.BOLD))
    room = max(height - len(top) - 1, 1)
    offset = min(state.offset, max(len(body) - room, 0))
    shown: list[tuple[str, Style]] = [(line, Style.PLAIN) for line in body[offset : offset + room]]
    shown += [("", Style.PLAIN)] * (room - len(shown))
    bottom = (_bottom(state, offset, len(shown), len(body), room), Style.REVERSE)
    # Of a terminal that is too small for it all the top is shown.
    lines = [(fit(line, width), style) for line, style in [*top, *shown, bottom]]
    return Frame(tuple(lines[:height]), offset, room)


def table(status: StatusDocument, state: State, width: int) -> list[str]:
    """Return the lines of the table of GPUs."""
    found = [
        lined(line, width)
        for row in rows(status, state)
        for line in cells(row, status.time, whole=state.whole, bar=bar_of(width))
    ]
    if found:
        return found
    if status.gpus is None:
        return ["No source has told of GPUs yet."]
    return ["Nothing has these words." if status.gpus else "This node has no GPU."]


def _body(feed: Feed, state: State, width: int) -> list[str]:
    if state.tab is Tab.HELP:
        return list(_HELP)
    if state.tab is Tab.COMPONENTS:
        return components(feed.status, width)
    return table(feed.status, state, width)


def _title(feed: Feed, width: int) -> str:
    status = feed.status
    left = f"{status.node}: {summary(status)}"
    time = f" {status.time:%H:%M:%S} UTC"
    return fit(left, width - len(time)) + time


def _second(feed: Feed) -> str:
    if feed.error:
        return f"! no answer for {span(feed.age_seconds)}: {feed.error}"
    if feed.status.waiting_for:
        return f"not ready: {feed.status.waiting_for}"
    found = problems(feed.status)
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"!{more} {found[0]}"


def _bottom(state: State, offset: int, shown: int, count: int, room: int) -> str:
    if state.typing:
        return f"filter: {state.filter}_"
    words = ["? help", "q quit"]
    if state.tab is not Tab.GPUS:
        words.insert(0, state.tab.value)
    elif state.sort is not Sort.INDEX:
        words.append(f"by {state.sort.word}")
    if state.tab is Tab.GPUS and state.filter:
        words.append(f"filter: {state.filter}")
    if state.tab is Tab.GPUS and state.folded:
        words.append("folded")
    if count > room:
        words.append(f"lines {offset + 1} to {offset + shown} of {count}")
    return "   ".join(words)
