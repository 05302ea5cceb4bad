"""Text of other programs is fitted into columns of a terminal."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgpu.cli.terminal_text import (
    fit,
    lines,
    middle,
    terminal_safe,
    width,
    wrapped,
    written,
)
from tests.support.examples import examples


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 5, "abcd~"),
        ("abcde", 5, "abcde"),
        ("日本語", 5, "日本~"),
        ("日本語", 4, "日~ "),
        ("e\N{COMBINING ACUTE ACCENT}x", 2, "e\N{COMBINING ACUTE ACCENT}x"),
        ("a\x1b[2Jb", 6, "a?[2Jb"),
        ("1\N{NO-BREAK SPACE}234", 5, "1 234"),
        ("abc", 0, ""),
        ("abc", 1, "~"),
        ("", 2, "  "),
    ],
)
def test_text_is_fitted_into_columns(text: str, columns: int, expected: str) -> None:
    assert fit(text, columns) == expected


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(st.text(min_size=1), st.integers(0, 40), st.booleans())
def test_any_text_has_the_width_of_its_columns(text: str, columns: int, right: bool) -> None:
    fitted = fit(text, columns, right=right)
    assert width(fitted) == columns
    assert fitted.isprintable()


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abcdefg", 7, "abcdefg"),
        ("abcdefg", 6, "ab~efg"),
        ("abcdefg", 5, "ab~fg"),
        ("abcdefg", 2, "~g"),
        ("abcdefg", 1, "~"),
        ("abcdefg", 0, ""),
        ("日本語日本語", 6, "日~語"),
        ("日本語日本語", 7, "日~語"),
    ],
)
def test_a_long_text_is_shortened_in_its_middle(text: str, columns: int, expected: str) -> None:
    assert middle(text, columns) == expected


@settings(deadline=None, max_examples=examples(60))
@given(st.text(), st.integers(0, 40))
def test_as_little_as_possible_of_a_text_is_left_out(text: str, columns: int) -> None:
    fitted = middle(text, columns)
    assert width(fitted) <= columns
    assert fitted.isprintable()
    if width(terminal_safe(text)) <= columns:
        assert fitted == terminal_safe(text)
    elif columns:
        head, _, tail = fitted.rpartition("~")
        assert terminal_safe(text).startswith(head.partition("~")[0])
        assert terminal_safe(text).endswith(tail)
        # A character can take two columns.
        assert width(fitted) >= columns - 2


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("", 5, []),
        ("one two", 7, ["one two"]),
        ("one two", 6, ["one", "two"]),
        ("a longword b", 5, ["a", "longw", "ord b"]),
        ("日本 語", 4, ["日本", "語"]),
        ("日本語", 3, ["日", "本", "語"]),
        ("日本", 1, ["日", "本"]),
        ("a\nb\x1b", 9, ["a?b?"]),
    ],
)
def test_a_text_is_wrapped_between_words(text: str, columns: int, expected: list[str]) -> None:
    assert wrapped(text, columns) == expected


@settings(deadline=None, max_examples=examples(60))
@given(st.text(max_size=200), st.integers(2, 40))
def test_a_wrapped_sentence_is_complete(text: str, columns: int) -> None:
    found = wrapped(text, columns)
    assert all(0 < width(line) <= columns or not width(line) for line in found)
    assert "".join(found).replace(" ", "") == terminal_safe(text).replace(" ", "")


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", "é日\N{EN DASH}"),
        ("latin-1", "é??"),
        ("ANSI_X3.4-1968", "???"),
        ("no-such-encoding", "???"),
    ],
)
def test_characters_that_the_encoding_lacks_are_replaced(encoding: str, expected: str) -> None:
    assert written("é日\N{EN DASH}", encoding) == expected
    assert written("plain", encoding) == "plain"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no-such-encoding"])
def test_graphs_have_similar_characters_in_ascii(encoding: str) -> None:
    found = written("▁▂▃▄▅▆▇█ 45·", encoding)
    assert found == "_.-:=+*# 45."
    assert written("├─ │  └─", encoding) == "|- |  `-"


@given(st.text())
def test_control_characters_are_replaced_by_blanks(text: str) -> None:
    printed = lines(text)
    assert len(printed) == len(text)
    for before, after in zip(text, printed, strict=True):
        assert after == (before if before == "\n" or before.isprintable() else " ")


@pytest.mark.parametrize("text", ["", "\n", "a\n\n  ├─ b │ é 漢\n", "x" * 10_000])
def test_printable_text_is_unchanged(text: str) -> None:
    assert lines(text) == text


# All pairs of streams: `test_a_table_that_cannot_be_written_is_an_error`, for `podgpu top`.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "status", "message"),
    [
        ('exec "$@" >&-', 3, "the findings can't be written: there is no stdout\n"),
        ('exec "$@" >/dev/full 2>/dev/full', 3, ""),
    ],
)
def test_findings_that_cannot_be_written_are_an_error(
    shell: str, status: int, message: str
) -> None:
    words = ["bash", "-c", shell, "bash", sys.executable, "-m", "podgpu", "doctor", "-c", "/no"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (status, message and f"podgpu doctor: {message}")
