"""Texts of foreign origin in places of a terminal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.status_page.document_builder import status_of
from podgpu.cli.terminal_text import broken, fit, middle, terminal_safe, width, written
from podgpu.cli.top.ui_state import State, Tab
from podgpu.cli.top.view import Feed, View
from tests.pipeline.status_page.scenes import hostile


@pytest.mark.parametrize(
    ("text", "columns", "wanted"),
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
def test_fitting(text: str, columns: int, wanted: str) -> None:
    assert fit(text, columns) == wanted


@settings(deadline=None, max_examples=60)
@given(st.text(min_size=1), st.integers(0, 40), st.booleans())
def test_anything_fits(text: str, columns: int, right: bool) -> None:
    made = fit(text, columns, right=right)
    assert width(made) == columns
    assert made.isprintable()


@pytest.mark.parametrize(
    ("text", "columns", "wanted"),
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
def test_what_is_left_out_within(text: str, columns: int, wanted: str) -> None:
    assert middle(text, columns) == wanted


@settings(deadline=None, max_examples=60)
@given(st.text(), st.integers(0, 40))
def test_what_is_left_out_within_is_no_more_than_has_to_be(text: str, columns: int) -> None:
    made = middle(text, columns)
    assert width(made) <= columns
    assert made.isprintable()
    if width(terminal_safe(text)) <= columns:
        assert made == terminal_safe(text)
    elif columns:
        head, _, tail = made.rpartition("~")
        assert terminal_safe(text).startswith(head.partition("~")[0])
        assert terminal_safe(text).endswith(tail)
        # A letter may take two columns.
        assert width(made) >= columns - 2


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200), st.integers(4, 40))
def test_a_text_that_is_broken_is_all_there(text: str, columns: int) -> None:
    first, *more = broken(text, columns)
    assert all(width(line) <= columns for line in (first, *more))
    assert all(line.startswith("  ") for line in more)
    assert "".join([first, *(line[2:] for line in more)]) == terminal_safe(text)
    assert len(more) <= len(text)


@settings(deadline=None, max_examples=60)
@given(st.text(min_size=1, max_size=400))
def test_no_text_gets_out_of_its_line(text: str) -> None:
    for tab in (Tab.GPUS, Tab.COMPONENTS):
        feed = Feed(status_of(hostile(text)))
        for line, _ in View().frame(feed, State(tab=tab), 80, 24).lines:
            assert line.isprintable()
            assert width(line) == 80


@pytest.mark.parametrize(
    ("encoding", "wanted"),
    [
        ("utf-8", "é日\N{EN DASH}"),
        ("latin-1", "é??"),
        ("ANSI_X3.4-1968", "???"),
        ("no-such-encoding", "???"),
    ],
)
def test_what_an_encoding_lacks_is_shown_as_such(encoding: str, wanted: str) -> None:
    assert written("é日\N{EN DASH}", encoding) == wanted
    assert written("plain", encoding) == "plain"
