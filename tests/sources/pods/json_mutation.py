"""Arbitrary JSON values, and how to put one in any place of an object."""

from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)

DEEP: list[Any] = []
"""Nested almost as deeply as the JSON parser allows, and deeper than `repr` can print."""
for _ in range(1000):
    DEEP = [DEEP]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of an object with another value at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Return the paths of all values of an object, including the object itself."""
    if not isinstance(value, dict | list):
        return [()]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [(), *((key, *rest) for key, child in inner for rest in paths(child))]
