"""Problems: whole, wrapped between words, and as many as fit into a part of the screen."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgpu.cli.top.command import plain
from podgpu.cli.top.problem_lines import first_problems, problem_lines
from podgpu.cli.top.styled_text import Line, Style, plain_text, width_of
from tests.podgpu.cli.top.views import screen, state_after
from tests.podgpu.cli.top.whole_node import NOW, whole_node
from tests.support.examples import examples

PROBLEMS = whole_node().problems or ()


def texts(lines: list[Line]) -> list[str]:
    return [plain_text(line) for line in lines]


@pytest.mark.parametrize("columns", [20, 40, 59, 60, 80, 200])
def test_every_word_is_shown(columns: int) -> None:
    """No text is cut, and only a word that is longer than a line is split."""
    joined = "".join("".join(texts(problem_lines(PROBLEMS, NOW, columns))).split())
    for problem in PROBLEMS:
        assert "".join(problem.text.split()) in joined
        assert "".join((problem.advice or "").split()) in joined
        for one in problem.containers:
            assert f"{one.namespace}/{one.pod}({one.container})" in joined


@pytest.mark.parametrize("columns", [40, 80])
def test_lines_end_with_whole_words(columns: int) -> None:
    words = " ".join(f"{each.text} {each.advice or ''}" for each in PROBLEMS).split()
    for line in texts(first_problems(PROBLEMS, NOW, columns, 5)):
        if line.endswith(" ..."):
            last = line.removesuffix(" ...").split()[-1]
            assert last in words or last.rstrip(")").isalnum()


@settings(deadline=None, max_examples=examples(100))
@given(
    st.integers(20, 220), st.integers(1, 60), st.integers(1, len(PROBLEMS)), st.sampled_from([0, 7])
)
def test_what_fits_is_shown_and_the_rest_is_counted(
    columns: int, room: int, count: int, left_out: int
) -> None:
    found = first_problems(PROBLEMS[:count], NOW, columns, room, left_out)
    assert 1 <= len(found) <= room
    assert max(map(width_of, found)) <= columns
    started = [line for line in texts(found) if line.startswith(("critical", "warning", "info"))]
    last = texts(found)[-1]
    counted = int(last.split()[0]) if last.endswith(": press !") else 0
    assert len(started) + counted == count + left_out
    whole = problem_lines(PROBLEMS[:count], NOW, columns)
    if len(whole) + bool(left_out) <= room:
        assert found[: len(whole)] == whole


def test_problems_that_the_document_does_not_have_are_counted() -> None:
    status = msgspec.structs.replace(whole_node(), problems_left_out=1)
    for shown in (plain(status, 80), screen(status, state_after("!"), height=90)):
        assert "1 more problem is not shown" in [line.rstrip() for line in shown]
    [line] = first_problems(PROBLEMS, NOW, 80, 1, status.problems_left_out)
    assert plain_text(line) == "6 problems: press !"


def test_the_most_severe_problem_is_whole_if_there_is_room_for_it() -> None:
    first = problem_lines(PROBLEMS[:1], NOW, 80)
    assert first_problems(PROBLEMS, NOW, 80, len(first) + 1)[:-1] == first
    assert texts(first_problems(PROBLEMS, NOW, 80, 1)) == ["5 problems: press !"]


def test_severities_have_styles_and_words() -> None:
    lines = problem_lines(PROBLEMS, NOW, 80)
    labels = {(line[0].text, line[0].style) for line in lines if line[0].text.strip()}
    assert labels == {("critical", Style.CRITICAL), ("warning", Style.WARNING)}
