"""What fails though lines are written is there for people who look at the sink."""

import errno
import logging
import os

import pytest

from pipeline.base.telemetry import Meter, Telemetry
from sinks.jsonl.fault_reports import FailureLog, Operation
from tests.support.nodes import at


@pytest.mark.parametrize(
    ("operation", "begins"),
    [
        ("compress", "cannot compress a rotated file of a.jsonl: "),
        ("fsync", "cannot flush a.jsonl to the disk: "),
    ],
)
def test_each_failure_is_the_last_one(operation: Operation, begins: str) -> None:
    telemetry, troubles = Telemetry(), FailureLog()
    meter, log = Meter(telemetry, "sink", "lines"), logging.getLogger("test")
    cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for seconds in (1, 2):
        troubles.record_failure(operation, cause)
        troubles.log_new("a.jsonl", log, meter, at(seconds))
        given_out = telemetry.problems["sink", "lines"]
        assert given_out.text.startswith(begins + os.strerror(errno.ENOSPC))
        assert given_out.at == at(seconds)
    troubles.record_success(operation)
    troubles.log_new("a.jsonl", log, meter, at(3))
    assert telemetry.problems["sink", "lines"].at == at(2)
