"""Tests of how text from other programs is made safe for messages."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.safe_text import line, redact, shortened, without_control_characters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\x00c", "a b c"),
        ("x" * 11, "x" * 10 + "..."),
        ("x" * 10, "x" * 10),
        ("123456789 1", "123456789..."),
        ("1234567890 1", "1234567890..."),
        ("12345678 901", "12345678 9..."),
        ("1 345678901", "1 34567890..."),
        ("\x1b[31mred", " [31mred"),
        ("a\u202eb\u2028c", "a b c"),
        ("\udcff", " "),
    ],
)
def test_other_programs_text_is_made_safe_for_a_log_line(text: str, shown: str) -> None:
    assert line(text, 10) == shown


@given(st.text(), st.integers(0, 20))
def test_the_text_is_one_printable_line_of_bounded_length(text: str, longest: int) -> None:
    shown = line(text, longest)
    assert shown.isprintable()
    assert len(shown) <= longest + len("...")


SECRETS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=4, max_size=40)


@given(st.text("#/", max_size=60), SECRETS, st.text("#/", max_size=60), st.integers(0, 160))
def test_a_secret_is_concealed_even_if_the_text_is_cut_within_it(
    before: str, secret: str, after: str, longest: int
) -> None:
    """Three characters of a secret that `line` cut may remain: they reveal nothing."""
    output = redact(line(f"{before}{secret}{after}{secret}", longest), [secret, ""])
    assert secret[:4] not in output.replace("(concealed)", "")


@given(st.text(), st.text(max_size=3))
def test_a_text_too_short_for_a_secret_is_not_concealed(text: str, short: str) -> None:
    assert redact(text, [short]) == text


@pytest.mark.parametrize(
    ("text", "at", "shown"),
    [
        ("x" * 10, None, "x" * 10),
        ("abcdef" + "x" * 20 + "::five", None, "abcde...:five"),
        ("x" * 20 + "WRONG" + "y" * 20, 22, "...xxxWRONGyy..."),
        ("WRONG" + "y" * 20, 0, "WRONGyyyyy..."),
        ("y" * 20 + "WRONG", 24, "...yyyyyWRONG"),
        ("a\nb", None, "a b"),
    ],
)
def test_t24_a_message_keeps_the_part_that_is_wrong(text: str, at: int | None, shown: str) -> None:
    assert shortened(text, 10, at) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\ufffd[31mb"),
        ("a\x07\r\x00\x7f\x9b", "a\ufffd\ufffd\ufffd\ufffd\ufffd"),
        ("gpu\u202egnp", "gpu\ufffdgnp"),
        ("\u2066\u200f\u061c\u2028\ufeff\u200b", "\ufffd" * 6),
        ("\ud800", "\ufffd"),
        # Letters of any script stay, as do tab and line feed.
        ("a\tb\nc", "a\tb\nc"),
        ("e\u0301 \u65e5\u672c \U0001f680\u00a0.", "e\u0301 \u65e5\u672c \U0001f680\u00a0."),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
    ],
)
def test_r11_characters_that_control_a_terminal_are_replaced(text: str, shown: str) -> None:
    """R11: a name with ESC, BEL or U+202E must not control the terminal that shows it."""
    assert without_control_characters(text) == shown


@given(st.text(st.characters()))
def test_r11_no_control_character_is_left(text: str) -> None:
    """R11: except tab and line feed. The length stays; a second call changes nothing."""
    shown = without_control_characters(text)
    assert len(shown) == len(text)
    assert without_control_characters(shown) == shown
    left = set(shown) - set("\t\n")
    assert not {unicodedata.category(each) for each in left} & {"Cc", "Cs", "Zl", "Zp"}
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not {unicodedata.bidirectional(each) for each in left} & bidi
