"""State of a component that outlives its runs, in the dictionary `restart_state` of its context."""

from typing import TypeVar

T = TypeVar("T")


def kept(restart_state: dict[str, object], kind: type[T]) -> T:
    """Return the object of class `kind` that an earlier run kept; if there is none, create it."""
    found = restart_state.get(kind.__qualname__)
    if not isinstance(found, kind):
        found = restart_state[kind.__qualname__] = kind()
    return found
