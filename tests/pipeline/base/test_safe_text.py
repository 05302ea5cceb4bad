"""What strangers wrote, in messages of ours."""

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


SECRETS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=4, max_size=40)


@given(st.text("#/", max_size=60), SECRETS, st.text("#/", max_size=60), st.integers(0, 160))
def test_a_secret_is_concealed_wherever_it_is_cut(
    before: str, secret: str, behind: str, longest: int
) -> None:
    """Of what `line` has left of it three characters may stay, which tell nothing."""
    given_out = redact(line(f"{before}{secret}{behind}{secret}", longest), [secret, ""])
    assert secret[:4] not in given_out.replace("(concealed)", "")


@given(st.text(), st.text(max_size=3))
def test_what_is_too_short_to_report_stays(text: str, short: str) -> None:
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
        # What is written in any script stays, as do tab and line feed.
        ("a\tb\nc", "a\tb\nc"),
        ("e\u0301 \u65e5\u672c \U0001f680\u00a0.", "e\u0301 \u65e5\u672c \U0001f680\u00a0."),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
    ],
)
def test_r11_characters_that_act_on_the_reader_are_replaced(text: str, shown: str) -> None:
    """R11: a name with ESC, BEL or U+202E must not act on the terminal that shows it."""
    assert without_control_characters(text) == shown


@given(st.text(st.characters()))
def test_r11_no_control_character_is_left(text: str) -> None:
    """R11: but tab and line feed; the text keeps its length, and a second pass changes nothing."""
    shown = without_control_characters(text)
    assert len(shown) == len(text)
    assert without_control_characters(shown) == shown
    left = set(shown) - set("\t\n")
    assert not {unicodedata.category(each) for each in left} & {"Cc", "Cs", "Zl", "Zp"}
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not {unicodedata.bidirectional(each) for each in left} & bidi
