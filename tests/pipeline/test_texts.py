"""What strangers wrote, in messages of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.texts import line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\x00c", "a b c"),
        ("x" * 11, "x" * 10 + "..."),
        ("x" * 10, "x" * 10),
        ("\x1b[31mred", " [31mred"),
        ("a\u202eb\u2028c", "a b c"),
        ("\udcff", " "),
    ],
)
def test_foreign_texts_are_made_fit_for_a_log(text: str, shown: str) -> None:
    assert line(text, 10) == shown


@given(st.text(), st.integers(0, 20))
def test_none_has_more_than_a_line(text: str, longest: int) -> None:
    shown = line(text, longest)
    assert shown.isprintable()
    assert len(shown) <= longest + len("...")
