"""For every test: no forgotten event loop, no blocking call in a running one."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

from pipeline.base.logs import ROOT

# How long one example takes says more of the machine than of the code.
# The same examples in each run: a new one that fails is found by `--hypothesis-profile=random`.
settings.register_profile("podgpu", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("podgpu")

_OURS = ["config", "pipeline", "podgpu", "sources", "sinks"]


def pytest_configure() -> None:
    # Else Python 3.11 makes a loop for whoever asks between two tests, and nobody closes it.
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Fail a test in which podgpu's code blocks the event loop."""
    with blockbuster_ctx(scanned_modules=_OURS) as guard:
        for function in guard.functions.values():
            # The kernel answers these from memory.
            function.can_block_in("pipeline/host/process_metrics.py", {"_points"})
            # This loop is one of its own, in a thread.
            function.can_block_in("pipeline/kube/credentials.py", {"_fill"})
        yield guard


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Leave podgpu's log as it was: a command that a test runs in this process sets it up."""
    log = logging.getLogger(ROOT)
    level, handlers, propagate = log.level, log.handlers[:], log.propagate
    yield
    log.setLevel(level)
    log.handlers[:] = handlers
    log.propagate = propagate
