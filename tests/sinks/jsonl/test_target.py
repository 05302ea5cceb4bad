"""Failures that lose no lines are shown as the sink's last problem."""

import errno
import logging
import os

import pytest

from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.registry import OWN_FAMILIES
from sinks.jsonl.target import FailureLog, Operation
from tests.support.nodes import at


@pytest.mark.parametrize(
    ("operation", "prefix"),
    [
        ("compress", "cannot compress a rotated file of a.jsonl: "),
        ("fsync", "cannot flush a.jsonl to the disk: "),
    ],
)
def test_each_failure_becomes_the_last_problem_of_the_sink(
    operation: Operation, prefix: str
) -> None:
    telemetry, failures = Telemetry(families=OWN_FAMILIES), FailureLog()
    meter, log = Meter(telemetry, "sink", "lines"), logging.getLogger("test")
    cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for seconds in (1, 2):
        failures.record(operation, cause)
        failures.log_new("a.jsonl", log, meter, at(seconds))
        problem = telemetry.problems["sink", "lines"]
        assert problem.text.startswith(prefix + os.strerror(errno.ENOSPC))
        assert problem.at == at(seconds)
    failures.record(operation)
    failures.log_new("a.jsonl", log, meter, at(3))
    assert telemetry.problems["sink", "lines"].at == at(2)
