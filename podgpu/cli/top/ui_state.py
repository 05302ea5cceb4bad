"""The state of the user interface, and how keys change it. Pure."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class Sort(Enum):
    """Sort order of the GPUs; the values are the keys that select it. High numbers come first."""

    INDEX = "i"
    UTILIZATION = "u"
    MEMORY = "m"
    POWER = "w"
    POD = "p"


class Tab(Enum):
    """What the body of the screen shows."""

    GPUS = "gpus"
    COMPONENTS = "sources and sinks"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class State:
    """What the user has selected.

    Attributes:
        tab: what the body of the screen shows.
        sort: the order of GPUs, and of the instances of a GPU.
        filter: words; only devices that match all words are shown.
        typing: whether the user is typing the filter.
        before: the filter to which Esc returns while the user is typing.
        folded: whether MIG instances are hidden.
        whole: whether all holders of a device are shown, with full names.
        offset: index of the first line of the body that is shown.
    """

    tab: Tab = Tab.GPUS
    sort: Sort = Sort.INDEX
    filter: str = ""
    typing: bool = False
    before: str = ""
    folded: bool = False
    whole: bool = False
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
    if state.tab is Tab.HELP:
        # Any other key closes the help.
        return replace(state, tab=Tab.GPUS, offset=0)
    return None if key == "q" else _chosen(state, key)


def _chosen(state: State, key: str) -> State:
    match key:
        case "?" | "h":
            return replace(state, tab=Tab.HELP, offset=0)
        case "\t" | "s":
            other = Tab.GPUS if state.tab is Tab.COMPONENTS else Tab.COMPONENTS
            return replace(state, tab=other, offset=0)
        case "/":
            return replace(state, tab=Tab.GPUS, typing=True, before=state.filter, offset=0)
        case "escape":
            return replace(state, filter="", offset=0)
        case "f":
            return replace(state, folded=not state.folded, offset=0)
        case "a":
            return replace(state, whole=not state.whole)
        case _ if key in _SORTS:
            return replace(state, tab=Tab.GPUS, sort=_SORTS[key], offset=0)
        case _:
            return state


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
