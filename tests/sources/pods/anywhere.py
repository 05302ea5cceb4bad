"""Any JSON in any place of an object, as whoever makes the object or answers for it may write."""

from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)

DEEP: list[Any] = []
"""About as deep as the parser of JSON lets pass; deeper than Python shows a value."""
for _ in range(1000):
    DEEP = [DEEP]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """Return an object with another value in one place."""
    if not path:
        return by
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Return all places of an object, its own included."""
    if not isinstance(value, dict | list):
        return [()]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [(), *((key, *rest) for key, child in inner for rest in paths(child))]
