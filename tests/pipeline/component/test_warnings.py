"""Warnings of a component: in the log and as its last problem."""

import logging

import pytest

from pipeline.base.telemetry import LastProblem
from pipeline.component.warnings import warn
from tests.support.contexts import FakeSourceContext
from tests.support.sinks import FakeSinkContext
from tests.support.warning_check import warnings_are_on_the_status_page


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("%s: %d left", ("/a", 2), "/a: 2 left"),
        ("nothing to put in", (), "nothing to put in"),
        # A text without values may contain any characters.
        ("100 % of /a%s", (), "100 % of /a%s"),
        ("%s", ("100 %d",), "100 %d"),
    ],
)
@pytest.mark.parametrize("news", [True, False])
def test_a_warning_is_logged_and_is_the_last_problem(
    text: str,
    values: tuple[object, ...],
    expected: str,
    news: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    ctx = FakeSinkContext("files")
    ctx.meter.set_problem("before", ctx.clock.now())
    warn(ctx, text, *values, is_new=news)
    [record] = caplog.records
    assert record.getMessage() == expected
    assert record.levelno == (logging.WARNING if news else logging.DEBUG)
    [(owner, problem)] = ctx.own.problems.items()
    assert (owner, problem.text, problem.warning) == (("sink", "files"), expected, True)
    assert problem.at <= ctx.clock.now()


def test_a_source_can_warn_too() -> None:
    ctx = FakeSourceContext("gpus")
    warn(ctx, "an odd answer")
    assert [problem.text for problem in ctx.telemetry.problems.values()] == ["an odd answer"]


def test_a_problem_of_a_component_is_not_a_warning() -> None:
    ctx = FakeSinkContext("files")
    now = ctx.clock.now()
    ctx.meter.set_problem("the disk is full", now)
    assert ctx.own.problems["sink", "files"] == LastProblem("the disk is full", now, warning=False)


def test_a_warning_that_is_only_in_the_log_is_detected() -> None:
    """`warnings_are_on_the_status_page` detects it, which checks all tests of sinks."""
    ctx = FakeSinkContext("files")

    def warn_and_set_problem(text: str, problem: str) -> None:
        with warnings_are_on_the_status_page():
            ctx.log.warning(text)
            ctx.meter.set_problem(problem, ctx.clock.now())

    warn_and_set_problem("the disk is full; tried again", "the disk is full")
    with pytest.raises(AssertionError, match=r"only in the log: .*the disk is full"):
        warn_and_set_problem("the disk is full", "something else")
