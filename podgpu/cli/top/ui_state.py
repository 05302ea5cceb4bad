"""The state of the user interface, and how keys change it. Pure."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final


class Sort(Enum):
    """Sort order of the GPUs; the values are the keys that select it. High numbers come first."""

    INDEX = "i"
    UTILIZATION = "u"
    MEMORY = "m"
    POWER = "w"
    POD = "p"


class View(Enum):
    """What the body of the screen shows; the values are its names in the footer."""

    OVERVIEW = "overview"
    PROBLEMS = "problems"
    USAGE = "usage"
    COMPONENTS = "sources and sinks"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class State:
    """What the user has selected.

    Attributes:
        view: what the body of the screen shows.
        sort: the order of GPUs, and of the instances of a GPU.
        filter: words; only devices that match all words are shown.
        typing: whether the user is typing the filter.
        before: the filter to which Esc returns while the user is typing.
        folded: whether MIG instances are hidden.
        whole: whether all holders of a device are shown, with full names.
        processes: whether the processes of each device are shown.
        evidence: whether UUIDs, and the source and evidence of each holder are shown.
        offset: index of the first line of the body that is shown.
    """

    view: View = View.OVERVIEW
    sort: Sort = Sort.INDEX
    filter: str = ""
    typing: bool = False
    before: str = ""
    folded: bool = False
    whole: bool = False
    processes: bool = False
    evidence: bool = False
    offset: int = 0


_MAX_FILTER: Final = 60
_END: Final = 1 << 30
"""More lines than any body has. `view` limits the offset to the last page."""

_MOVES: Final = {
    **dict.fromkeys(("up", "k"), (0, -1)),
    **dict.fromkeys(("down", "j"), (0, 1)),
    "page-up": (-1, 0),
    **dict.fromkeys(("page-down", " "), (1, 0)),
    **dict.fromkeys(("home", "g"), (0, -_END)),
    **dict.fromkeys(("end", "G"), (0, _END)),
}
"""Number of pages and number of lines by which a key scrolls."""

_ENTER: Final = frozenset({"\n", "\r", "enter"})
_SORTS: Final = {sort.value: sort for sort in Sort}
_VIEWS: Final = {
    "!": View.PROBLEMS,
    "d": View.USAGE,
    "s": View.COMPONENTS,
    "?": View.HELP,
    "h": View.HELP,
}
_SWITCHES: Final = {"f": "folded", "a": "whole", "x": "processes", "e": "evidence"}
"""The attribute of the state that a key switches on and off."""

_ORDER: Final = (View.OVERVIEW, View.PROBLEMS, View.USAGE, View.COMPONENTS)
"""The views through which Tab goes."""


def pressed(state: State, key: str, page: int) -> State | None:
    """Return the state after a key; None if the key quits.

    Args:
        state: the state before.
        key: a character, or the name of a key: `up`, `down`, `page-up`, `page-down`, `home`, `end`,
            `enter`, `backspace`, `escape`. Unknown keys change nothing.
        page: number of lines of a page.
    """
    if state.typing:
        return _typed(state, key)
    if key in _MOVES:
        pages, lines = _MOVES[key]
        return replace(state, offset=max(state.offset + pages * page + lines, 0))
    if state.view is View.HELP:
        # Any other key closes the help.
        return replace(state, view=View.OVERVIEW, offset=0)
    return None if key == "q" else _chosen(state, key)


def _chosen(state: State, key: str) -> State:
    if key in _VIEWS:
        # The key of the view that is shown goes back.
        view = View.OVERVIEW if state.view is _VIEWS[key] else _VIEWS[key]
        return replace(state, view=view, offset=0)
    if key in _SORTS:
        return replace(state, view=View.OVERVIEW, sort=_SORTS[key], offset=0)
    if key in _SWITCHES:
        name = _SWITCHES[key]
        offset = 0 if key == "f" else state.offset
        changed: dict[str, Any] = {name: not getattr(state, name)}
        return replace(state, view=View.OVERVIEW, offset=offset, **changed)
    match key:
        case "\t":
            return replace(state, view=_after(state.view), offset=0)
        case "/":
            return replace(state, view=View.OVERVIEW, typing=True, before=state.filter, offset=0)
        case "escape" if state.view is not View.OVERVIEW:
            return replace(state, view=View.OVERVIEW, offset=0)
        case "escape":
            return replace(state, filter="", offset=0)
        case _:
            return state


def _after(view: View) -> View:
    return _ORDER[(_ORDER.index(view) + 1) % len(_ORDER)]


def _typed(state: State, key: str) -> State:
    if key in _ENTER:
        return replace(state, typing=False)
    if key == "escape":
        return replace(state, typing=False, filter=state.before)
    if key in {"backspace", "\x7f", "\b"}:
        return replace(state, filter=state.filter[:-1])
    if key == "\x15":  # Ctrl-U
        return replace(state, filter="")
    if len(key) == 1 and key.isprintable() and len(state.filter) < _MAX_FILTER:
        return replace(state, filter=state.filter + key)
    return state
