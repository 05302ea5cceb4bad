"""Fixtures of the nvml tests: the fake driver library, and short waits."""

from collections.abc import AsyncIterator

import pytest

from pipeline.model import NS
from sources.nvml import worker_pool, xid_watch
from tests.fakes.nvml import FakeNvml, h100s
from tests.fakes.nvml.fixtures import fake_nvml
from tests.sources.nvml.harness import sampling_threads, until

__all__ = ["fake_nvml", "no_thread_left", "short_waits", "whole_rounds"]

_PROGRESS_INTERVAL_NS = worker_pool.PROGRESS_INTERVAL_NS


@pytest.fixture
async def no_thread_left(fake_nvml: FakeNvml) -> AsyncIterator[None]:
    """Unblock the fake driver after the test, and wait until all sampling threads have ended."""
    yield
    fake_nvml.set(h100s(1))
    await until(lambda: sampling_threads() == 0)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for XID events, so that a source stops quickly."""
    monkeypatch.setattr(xid_watch, "SLICE", 0.03)


@pytest.fixture(autouse=True)
def whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emit each round as one event, however long it takes on a busy machine."""
    monkeypatch.setattr(worker_pool, "PROGRESS_INTERVAL_NS", 3600 * NS)


@pytest.fixture
def partial_rounds(whole_rounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emit a long round in parts, as the product does."""
    monkeypatch.setattr(worker_pool, "PROGRESS_INTERVAL_NS", _PROGRESS_INTERVAL_NS)
