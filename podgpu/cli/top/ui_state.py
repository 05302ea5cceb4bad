"""What the user has chosen, and what each key makes of it. Pure."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class Sort(Enum):
    """What the GPUs are in order of, by key; figures from the highest down."""

    INDEX = "i"
    UTILIZATION = "u"
    MEMORY = "m"
    POWER = "w"
    POD = "p"

    @property
    def word(self) -> str:
        """What it is called."""
        return self.name.lower()


class Tab(Enum):
    """What is shown."""

    GPUS = "gpus"
    COMPONENTS = "sources and sinks"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class State:
    """What the user has chosen.

    Attributes:
        tab: what is shown.
        sort: the order of GPUs, and of instances below their GPU.
        filter: words that a row has to have, all of them.
        typing: the filter is being typed.
        before: the filter before that.
        folded: MIG instances are not shown one by one.
        whole: every holder of a device has a line of its own.
        offset: the first row that is shown.
    """

    tab: Tab = Tab.GPUS
    sort: Sort = Sort.INDEX
    filter: str = ""
    typing: bool = False
    before: str = ""
    folded: bool = False
    whole: bool = False
    offset: int = 0


QUIT: Final = None

_LONGEST: Final = 60
_ENTER: Final = frozenset({"\n", "\r", "enter"})
_SORTS: Final = {sort.value: sort for sort in Sort}


def pressed(state: State, key: str, page: int) -> State | None:
    """Return what a key makes of it; None where it ends the program.

    Args:
        state: what is so far.
        key: a character, or the name of a key: `up`, `down`, `page-up`, `page-down`, `home`, `end`,
            `enter`, `backspace`, `escape`. A key that means nothing changes nothing.
        page: how many rows are shown at once.
    """
    if state.typing:
        return _typed(state, key)
    moved = _moved(state, key, page)
    if moved is not None:
        return moved
    if key == "q" and state.tab is not Tab.HELP:
        return QUIT
    if state.tab is Tab.HELP:
        # Whatever key it is: nobody has to know which one leads back.
        return replace(state, tab=Tab.GPUS, offset=0)
    return _chosen(state, key)


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


def _moved(state: State, key: str, page: int) -> State | None:
    steps = {
        "up": -1,
        "k": -1,
        "down": 1,
        "j": 1,
        "page-up": -page,
        "page-down": page,
        " ": page,
    }
    if key in steps:
        return replace(state, offset=max(state.offset + steps[key], 0))
    if key in {"home", "g"}:
        return replace(state, offset=0)
    if key in {"end", "G"}:
        # The view knows where that is.
        return replace(state, offset=1 << 30)
    return None


def _typed(state: State, key: str) -> State:
    if key in _ENTER:
        return replace(state, typing=False)
    if key == "escape":
        return replace(state, typing=False, filter=state.before)
    if key in {"backspace", "\x7f", "\b"}:
        return replace(state, filter=state.filter[:-1])
    if key == "\x15":  # Ctrl-U
        return replace(state, filter="")
    if len(key) == 1 and key.isprintable() and len(state.filter) < _LONGEST:
        return replace(state, filter=state.filter + key)
    return state
