"""Objects that are not as an API server has them."""

from typing import Any

from hypothesis import strategies as st

ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just("9" * 5000)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def replaced(value: Any, at: list[int], odd: Any) -> Any:
    """Return an object with something odd in one place of it, or in its own place."""
    if not at or not isinstance(value, dict | list) or not value:
        return odd
    keys: Any = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[at[0] % len(keys)]
    made = dict(value) if isinstance(value, dict) else list(value)
    made[key] = replaced(value[key], at[1:], odd)
    return made
