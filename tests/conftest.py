"""Fixtures for all tests: no unclosed event loop, and no blocking call in a running loop."""

import asyncio
import inspect
import logging
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

from pipeline.base.logs import ROOT

# No deadline: the time of one example depends on the machine more than on the code.
# The examples are the same in each run; `--hypothesis-profile=random` tries others.
settings.register_profile("podgpu", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.register_profile("fast", deadline=None, derandomize=True, max_examples=10)
settings.load_profile("podgpu")

_OURS = ["config", "pipeline", "podgpu", "sources", "sinks"]


def pytest_configure() -> None:
    # Otherwise Python 3.11 creates a loop between two tests on request, and no code closes it.
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def blockbuster(request: pytest.FixtureRequest) -> Iterator[BlockBuster]:
    """Fail a test in which podgpu's code blocks the event loop; only tests that are coroutines."""
    test = request.function
    test = test.hypothesis.inner_test if hasattr(test, "hypothesis") else test
    if not inspect.iscoroutinefunction(test):
        yield BlockBuster()
        return
    with blockbuster_ctx(scanned_modules=_OURS) as guard:
        for function in guard.functions.values():
            # The kernel serves these files from memory.
            function.can_block_in("pipeline/host/process_metrics.py", {"process_points"})
            # This function runs in a separate thread with a separate event loop.
            function.can_block_in("pipeline/kube/credentials.py", {"_fill"})
        yield guard


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Restore both loggers that commands change if they run in this process."""
    loggers = logging.getLogger(ROOT), logging.getLogger()
    before = [(log, log.level, log.handlers[:], log.propagate) for log in loggers]
    yield
    for log, level, handlers, propagate in before:
        log.setLevel(level)
        log.handlers[:] = handlers
        log.propagate = propagate
