"""What the terminal shows. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from pipeline.status_page.display_text import span
from pipeline.status_page.problems import problems, summary
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.terminal_text import fit
from podgpu.cli.top.body import MOST_ABOVE, Line, body
from podgpu.cli.top.columns import heading
from podgpu.cli.top.ui_state import Sort, State, Tab


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


class View:
    """Works out what is shown, from one moment to the next.

    What was made of an answer is made again for another one, or where the user wants to see
    something else: a terminal is drawn several times a second.
    """

    def __init__(self) -> None:
        self._made: _Made | None = None

    def frame(self, feed: Feed, state: State, width: int, height: int) -> Frame:
        """Return what is shown.

        Args:
            feed: what is known of the daemon.
            state: what the user has chosen.
            width: columns of the terminal.
            height: lines of it.
        """
        made = self._of(feed.status, state, width)
        top = [(_title(feed.status, made, width), Style.REVERSE), (_second(feed, made), Style.BOLD)]
        if state.tab is Tab.GPUS:
            top.append((heading(width), Style.BOLD))
        room = max(height - len(top) - 1, 1)
        offset = min(state.offset, max(len(made.body) - room, 0))
        above = _above(made.body, offset, room)
        shown = [(line.text, Style.PLAIN) for line in made.body[offset : offset + room]]
        shown[: len(above)] = [(text, Style.BOLD) for text in above]
        empty = [("", Style.PLAIN)] * (room - len(shown))
        last, first = offset + len(shown), offset + len(above) + 1
        bottom = (_bottom(state, first, last, len(made.body)), Style.REVERSE)
        # Of a terminal that is too small for it all the top is shown.
        lines = [(fit(line, width), style) for line, style in [*top, *shown, *empty, bottom]]
        # No line is left out by who turns pages.
        return Frame(tuple(lines[:height]), offset, room - MOST_ABOVE if room >= _ROOM else room)

    def _of(self, status: StatusDocument, state: State, width: int) -> "_Made":
        wanted = replace(state, offset=0, typing=False, before="")
        made = self._made
        # Another answer is another object, and this one is kept for as long as it is compared.
        if made is None or made.status is not status or (made.state, made.width) != (wanted, width):
            same = made is not None and made.status is status
            made = self._made = _Made(
                status=status,
                state=wanted,
                width=width,
                summary=made.summary if made is not None and same else summary(status),
                problems=made.problems if made is not None and same else tuple(problems(status)),
                body=tuple(body(status, wanted, width)),
            )
        return made


@dataclass(frozen=True, slots=True)
class _Made:
    """What was made, and of what."""

    status: StatusDocument
    state: State
    width: int
    summary: str
    problems: tuple[str, ...]
    body: tuple[Line, ...]


_ROOM: Final = 6
"""Rows that a terminal has to have before some of them say what the first one belongs to."""


def _above(body: Sequence[Line], offset: int, room: int) -> list[str]:
    """Return what stands in place of the first rows: what they belong to, and is further up."""
    if room < _ROOM:
        return []
    before: Sequence[int] = ()
    for taken in range(MOST_ABOVE + 1):
        # So many lines hide as many rows: what the first one belongs to that is still seen?
        first = offset + taken
        above = [at for at in body[first].above if at < first] if first < len(body) else []
        if len(above) <= taken:
            return [body[at].text for at in (*above, *before[len(above) : taken])]
        before = above
    return []


def _title(status: StatusDocument, made: _Made, width: int) -> str:
    left = f"{status.node}: {made.summary}"
    time = f" {status.time:%H:%M:%S} UTC"
    return fit(left, width - len(time)) + time


def _second(feed: Feed, made: _Made) -> str:
    if feed.error:
        return f"! no answer for {span(feed.age_seconds)}: {feed.error}"
    if feed.status.waiting_for:
        return f"not ready: {feed.status.waiting_for}"
    found = made.problems
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"!{more} {found[0]}"


def _bottom(state: State, first: int, last: int, count: int) -> str:
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
    if first > 1 or last < count:
        words.append(f"lines {first} to {last} of {count}")
    return "   ".join(words)
