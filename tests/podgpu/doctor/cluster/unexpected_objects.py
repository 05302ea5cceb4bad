"""Objects with a value of an unexpected type, which no API server returns."""

from typing import Any

from hypothesis import strategies as st

UNEXPECTED = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just("9" * 5000)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def replaced(value: Any, at: list[int], unexpected: Any) -> Any:
    """Return an object in which one value, or the whole, is replaced."""
    if not at or not isinstance(value, dict | list) or not value:
        return unexpected
    keys: Any = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[at[0] % len(keys)]
    made = dict(value) if isinstance(value, dict) else list(value)
    made[key] = replaced(value[key], at[1:], unexpected)
    return made
