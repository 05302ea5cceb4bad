"""Tests of which states of a queue are a problem of its sink."""

import pytest

from pipeline.delivery.contract import QueueState, Totals
from pipeline.delivery.metrics import DeliveryMetrics
from tests.support.sinks import FakeSinkContext

LOST = "3 points were broken, and are lost"
EMPTY = QueueState(Totals(), 0, 0, None)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (QueueState(Totals(), 0, 0, None, warnings=(LOST,)), LOST),
        (
            QueueState(Totals(), 0, 0, None, faults={("fsync", "io_error"): 1}),
            "queue: fsync fails: io_error",
        ),
        (
            QueueState(Totals(), 0, 0, None, faults={("fsync", "io_error"): 1}, warnings=(LOST,)),
            "queue: fsync fails: io_error",
        ),
    ],
    ids=["a loss", "a disk that fails", "a loss and a disk that fails"],
)
def test_lost_points_and_disk_faults_are_problems_and_not_warnings(
    state: QueueState, text: str
) -> None:
    ctx = FakeSinkContext("push")
    reporter = DeliveryMetrics(ctx)
    reporter.on_opened(EMPTY, None)
    assert ctx.own.problems == {}
    reporter.update(state)
    problem = ctx.own.problems["sink", "push"]
    assert (problem.text, problem.warning) == (text, False)


def test_points_that_an_earlier_stop_dropped_are_not_reported_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ctx = FakeSinkContext("push")
    reporter = DeliveryMetrics(ctx)
    earlier = Totals(appended=5, dropped={"shutdown": 5})
    reporter.on_opened(QueueState(earlier, 0, 0, None, previous=earlier), None)
    reporter.on_closed()
    assert caplog.text == ""
    now = Totals(appended=7, dropped={"shutdown": 7})
    reporter.update(QueueState(now, 0, 0, None, previous=earlier))
    reporter.on_closed()
    assert "2 points in memory are lost at shutdown" in caplog.text
