"""What a component warns of: in the log, and for those who look at the component."""

import logging

import pytest

from pipeline.base.telemetry import LastProblem
from pipeline.component.warnings import warn
from tests.support.contexts import FakeSourceContext
from tests.support.sinks import FakeSinkContext
from tests.support.warned import every_warning_stands


@pytest.mark.parametrize(
    ("text", "values", "given_out"),
    [
        ("%s: %d left", ("/a", 2), "/a: 2 left"),
        ("nothing to put in", (), "nothing to put in"),
        # A text that is no format may have any characters.
        ("100 % of /a%s", (), "100 % of /a%s"),
        ("%s", ("100 %d",), "100 %d"),
    ],
)
@pytest.mark.parametrize("news", [True, False])
def test_it_is_logged_and_stands_as_the_last_trouble(
    text: str,
    values: tuple[object, ...],
    given_out: str,
    news: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    ctx = FakeSinkContext("files")
    ctx.meter.set_problem("before", ctx.clock.now())
    warn(ctx, text, *values, is_new=news)
    [record] = caplog.records
    assert record.getMessage() == given_out
    assert record.levelno == (logging.WARNING if news else logging.DEBUG)
    [(owner, trouble)] = ctx.own.problems.items()
    assert (owner, trouble.text, trouble.warning) == (("sink", "files"), given_out, True)
    assert trouble.at <= ctx.clock.now()


def test_it_serves_sources_too() -> None:
    ctx = FakeSourceContext("gpus")
    warn(ctx, "an odd answer")
    assert [trouble.text for trouble in ctx.telemetry.problems.values()] == ["an odd answer"]


def test_a_component_in_trouble_is_no_warning() -> None:
    ctx = FakeSinkContext("files")
    now = ctx.clock.now()
    ctx.meter.set_problem("the disk is full", now)
    assert ctx.own.problems["sink", "files"] == LastProblem("the disk is full", now, warning=False)


def test_a_warning_in_the_log_alone_is_found() -> None:
    """What holds all tests of sinks to it does so."""
    ctx = FakeSinkContext("files")

    def look(text: str, trouble: str) -> None:
        with every_warning_stands():
            ctx.log.warning(text)
            ctx.meter.set_problem(trouble, ctx.clock.now())

    look("the disk is full; tried again", "the disk is full")
    with pytest.raises(AssertionError, match=r"in the log alone: .*the disk is full"):
        look("the disk is full", "something else")
