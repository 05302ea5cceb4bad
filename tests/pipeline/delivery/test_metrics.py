"""What of a queue stands as a sink's trouble."""

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
    ids=["a loss", "a disk that fails", "a loss, and the disk goes on failing"],
)
def test_what_a_queue_lost_and_what_fails_is_no_mere_warning(state: QueueState, text: str) -> None:
    ctx = FakeSinkContext("push")
    reporter = DeliveryMetrics(ctx)
    reporter.on_opened(EMPTY, None)
    assert ctx.own.problems == {}
    reporter.update(state)
    given_out = ctx.own.problems["sink", "push"]
    assert (given_out.text, given_out.warning) == (text, False)
