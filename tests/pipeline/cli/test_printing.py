"""Texts of others on a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli.printing import lines


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    made = lines(text)
    assert len(made) == len(text)
    for before, after in zip(text, made, strict=True):
        assert after == (before if before == "\n" or before.isprintable() else " ")


@pytest.mark.parametrize("text", ["", "\n", "a\n\n  ├─ b │ é 漢\n", "x" * 10_000])
def test_what_is_harmless_stays(text: str) -> None:
    assert lines(text) == text
