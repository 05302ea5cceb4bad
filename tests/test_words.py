"""`make lint` refuses words that readers stumble over; the list is in `tests/support/words.py`."""

from pathlib import Path

import pytest

from tests.support.words import KEPT, REFUSED, search

HERE = Path("a.py")


def found(text: str) -> list[str]:
    return [each.word for each in search(text, HERE)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the driver mends it", ["mends"]),
        ("def test_a_pod_lets_go() -> None:", ["lets_go"]),
        ("TOLD = nobodys_word", ["TOLD"]),
        ("It is nobody's, and begins anew.", ["nobody's", "begins anew"]),
        ("by its word\nstands by it", ["by its word", "stands by"]),
        ("a recommendation, untold, a teller, a storyteller, renewal", []),
        ("ongoing, a goods train", []),
    ],
)
def test_words_are_found_in_prose_and_in_identifiers(text: str, words: list[str]) -> None:
    assert found(text) == words


def test_a_line_has_its_number_and_the_replacement() -> None:
    (one,) = search("fine\nheeded\n", HERE)
    assert (one.path, one.line, one.refused.instead) == (HERE, 2, "follow, obey")


@pytest.mark.parametrize("text", KEPT)
def test_names_in_formats_are_kept(text: str) -> None:
    assert found(f"the key {text} stays") == []


def test_each_refused_word_has_a_replacement_and_a_reason() -> None:
    assert all(one.instead and one.reason for one in REFUSED)
