"""Random sequences of calls, compared with a list."""

import errno
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from pipeline.delivery.contract import Record
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.support import (
    MAX,
    Bench,
    Failing,
    checked,
    drain,
    kill,
    numbers,
    on_disk,
    points,
    record,
)
from tests.support.examples import examples

SIGNALS = st.sampled_from([0, 0, 0, 1, 3])
SIZES = st.sampled_from([13, 40, 1000, 30_000, 66_000, 200_000])


class Calls(RuleBasedStateMachine):
    """The model: `waiting` and `taken` contain the expected records, including dropped ones.

    The oldest records are dropped first. So all records before the next one that is taken were
    dropped, and at the end their sum must match the count.
    """

    kind = "memory"

    @initialize(fsync=st.sampled_from([0.0, 0.5]))
    def begin(self, fsync: float) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.disk = Failing(os.pwritev, errno.ENOSPC)
        self.patch.setattr(os, "pwritev", self.disk)
        # A kill loses nothing that was written, so nothing has to be flushed.
        self.patch.setattr(os, "fsync", os.fstat)
        self.bench = Bench(self.kind, self.folder / "queue", fsync=fsync, memory=64 << 20)
        self.queue: MemoryQueue = self.bench.open()
        self.count = 0
        self.waiting: list[Record] = []
        self.taken: list[Record] = []
        self.acked = self.rejected = self.dropped = self.refused = 0
        self.appended = 0

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        try:
            self.disk.on = False
            self.bench.clock.pass_(2)
            self.queue.maintain(self.bench.clock.mono_ns)
            self.release_taken()
            for found in drain(self.queue, 100_000):
                self.find([found])
                self.acked += found.points
            self.dropped += points(self.waiting)
            totals = checked(self.queue).totals
            assert totals.queued == 0
            assert totals.dropped.get("queue_over_size", 0) == self.dropped
            assert totals.dropped.get("no_space", 0) == self.refused
            assert totals.acked == self.acked
            self.queue.close()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    def find(self, found: list[Record]) -> None:
        """Remove these records from `waiting`, and count all records before them as dropped."""
        start = self.waiting.index(found[0])
        assert self.waiting[start : start + len(found)] == found
        lost = points(self.waiting[:start])
        if lost:
            assert checked(self.queue).totals.dropped["queue_over_size"] >= lost
        self.dropped += lost
        del self.waiting[: start + len(found)]

    def release_taken(self) -> None:
        self.queue.release()
        self.waiting[:0] = self.taken
        self.taken = []

    @rule(put=st.lists(st.tuples(SIZES, SIGNALS), max_size=6))
    def append(self, put: list[tuple[int, int]]) -> None:
        records = [
            replace(record(self.count + index, size), signal=signal)
            for index, (size, signal) in enumerate(put)
        ]
        self.count += len(records)
        self.appended += points(records)
        self.queue.append(records)
        if self.kind == "disk" and self.disk.on:
            self.refused += points(records)
        else:
            self.waiting += records

    @precondition(lambda self: not self.taken)
    @rule(most=st.sampled_from([0, 100, 50_000, 400_000]))
    def take(self, most: int) -> None:
        found = list(self.queue.take(most))
        if found:
            assert len(found) == 1 or sum(len(one.data) for one in found) <= most
            assert len({one.signal for one in found}) == 1
            self.find(found)
            self.taken = found

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def settle(self, data: Any) -> None:
        count = data.draw(st.integers(0, len(self.taken)))
        total = points(self.taken[:count])
        acked = data.draw(st.integers(0, total))
        self.queue.settle(
            count, acked=acked, rejected={"no": total - acked} if total - acked else {}
        )
        self.acked += acked
        self.rejected += total - acked
        del self.taken[:count]

    @rule()
    def release(self) -> None:
        self.release_taken()

    @rule(seconds=st.sampled_from([0.1, 0.7, 3]))
    def maintain(self, seconds: float) -> None:
        self.queue.maintain(self.bench.clock.pass_(seconds))

    @precondition(lambda self: self.kind != "memory" and not self.disk.on)
    @rule()
    def fail(self) -> None:
        self.disk.on = True

    @precondition(lambda self: self.kind != "memory" and self.disk.on)
    @rule()
    def repair(self) -> None:
        self.disk.on = False

    @precondition(lambda self: self.kind != "memory" and not self.disk.on)
    @rule()
    def reopen(self) -> None:
        queued = self.queue.state().totals
        self.release_taken()
        self.queue.close()
        self.queue = self.bench.open()
        state = checked(self.queue)
        assert state.recovered == state.totals.queued
        assert state.totals.appended == queued.appended == self.appended

    @precondition(lambda self: self.kind != "memory")
    @rule()
    def killed(self) -> None:
        if isinstance(self.queue, FallbackQueue) and (self.queue._taken or self.queue._waiting):
            return  # what is in memory is lost by a kill
        if self.refused:
            self.queue.settle(0)  # writes the counts of refused records to the cursor
        before = self.queue.state().totals
        kill(self.queue)
        self.waiting[:0] = self.taken
        self.taken = []
        self.queue = self.bench.open()
        totals = checked(self.queue).totals
        assert totals.appended == before.appended == self.appended
        assert totals.acked == before.acked

    @invariant()
    def adds_up(self) -> None:
        if not hasattr(self, "queue"):
            return
        totals = checked(self.queue).totals
        assert totals.appended == self.appended
        assert totals.acked == self.acked
        assert sum(totals.rejected.values()) == self.rejected
        dropped = sum(totals.dropped.values())
        if not dropped:
            assert totals.queued == points(self.waiting) + points(self.taken)
        if self.kind != "memory":
            assert on_disk(self.bench.path) <= MAX


class CallsToDisk(Calls):
    kind = "disk"


class CallsToSafe(Calls):
    kind = "safe"


_SETTINGS = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

TestMemory = Calls.TestCase
TestMemory.settings = _SETTINGS
TestDisk = CallsToDisk.TestCase
TestDisk.settings = _SETTINGS
TestSafe = CallsToSafe.TestCase
TestSafe.settings = _SETTINGS


def test_the_helpers_return_the_numbers_of_records() -> None:
    assert numbers([record(3), record(12, 70_000)]) == [3, 12]
