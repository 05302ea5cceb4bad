"""Render the screen as lines of text. Pure."""

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
    """How a line is highlighted. There are no colours."""

    PLAIN = "plain"
    BOLD = "bold"
    REVERSE = "reverse"


@dataclass(frozen=True, slots=True)
class Feed:
    """The status of the daemon and its age.

    Attributes:
        status: the last successful response.
        age_seconds: age of that response.
        error: error of the last query; empty if it succeeded.
    """

    status: StatusDocument
    age_seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of the screen.

    Attributes:
        lines: one for each line of the terminal, each as wide as the terminal.
        offset: index of the first line of the body that is shown, after limiting it.
        page: number of lines to scroll by a page.
    """

    lines: tuple[tuple[str, Style], ...]
    offset: int
    page: int


class View:
    """Renders the screen.

    The rendered body is kept until the status, the state or the width changes, because the screen
    is drawn several times a second.
    """

    def __init__(self) -> None:
        self._rendered: _Rendered | None = None

    def frame(self, feed: Feed, state: State, width: int, height: int) -> Frame:
        """Return the content of the screen.

        Args:
            feed: the status of the daemon.
            state: what the user has selected.
            width: width of the terminal.
            height: height of the terminal.
        """
        rendered = self._of(feed.status, state, width)
        top = [
            (_title(feed.status, rendered, width), Style.REVERSE),
            (_second(feed, rendered), Style.BOLD),
        ]
        if state.tab is Tab.GPUS:
            top.append((heading(width), Style.BOLD))
        room = max(height - len(top) - 1, 1)
        offset = min(state.offset, max(len(rendered.body) - room, 0))
        above = _above(rendered.body, offset, room)
        shown = [(line.text, Style.PLAIN) for line in rendered.body[offset : offset + room]]
        shown[: len(above)] = [(text, Style.BOLD) for text in above]
        empty = [("", Style.PLAIN)] * (room - len(shown))
        last, first = offset + len(shown), offset + len(above) + 1
        bottom = (_bottom(state, first, last, len(rendered.body)), Style.REVERSE)
        # A terminal that is too small shows the top.
        lines = [(fit(line, width), style) for line, style in [*top, *shown, *empty, bottom]]
        # A page leaves out the lines that may be covered, so that scrolling skips no line.
        return Frame(
            tuple(lines[:height]), offset, room - MOST_ABOVE if room >= _MIN_ROWS else room
        )

    def _of(self, status: StatusDocument, state: State, width: int) -> "_Rendered":
        key = replace(state, offset=0, typing=False, before="")
        rendered = self._rendered
        # Compared by identity: every response is a new object, and this one is still referenced.
        if (
            rendered is None
            or rendered.status is not status
            or (rendered.state, rendered.width) != (key, width)
        ):
            same_status = rendered is not None and rendered.status is status
            rendered = self._rendered = _Rendered(
                status=status,
                state=key,
                width=width,
                summary=rendered.summary
                if rendered is not None and same_status
                else summary(status),
                problems=rendered.problems
                if rendered is not None and same_status
                else tuple(problems(status)),
                body=tuple(body(status, key, width)),
            )
        return rendered


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A rendered body, and the inputs it was rendered from."""

    status: StatusDocument
    state: State
    width: int
    summary: str
    problems: tuple[str, ...]
    body: tuple[Line, ...]


_MIN_ROWS: Final = 6
"""Least lines of the body for which the first ones can be replaced by those they belong to."""


def _above(body: Sequence[Line], offset: int, room: int) -> list[str]:
    """Return the lines that replace the first ones: their GPU and instance, if scrolled off."""
    if room < _MIN_ROWS:
        return []
    before: Sequence[int] = ()
    for covered in range(MOST_ABOVE + 1):
        # These lines cover as many rows. What does the first uncovered row belong to?
        first = offset + covered
        above = [at for at in body[first].above if at < first] if first < len(body) else []
        if len(above) <= covered:
            return [body[at].text for at in (*above, *before[len(above) : covered])]
        before = above
    return []


def _title(status: StatusDocument, rendered: _Rendered, width: int) -> str:
    left = f"{status.node}: {rendered.summary}"
    time = f" {status.time:%H:%M:%S} UTC"
    return fit(left, width - len(time)) + time


def _second(feed: Feed, rendered: _Rendered) -> str:
    if feed.error:
        return f"! no response for {span(feed.age_seconds)}: {feed.error}"
    if feed.status.waiting_for:
        return f"not ready: {feed.status.waiting_for}"
    found = rendered.problems
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
