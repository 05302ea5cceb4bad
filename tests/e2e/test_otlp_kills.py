"""podgpu and the Collector are killed repeatedly, and every point is counted."""

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.collector import Collector
from tests.e2e.otlp_podgpu import Pusher, push, pushing
from tests.e2e.processes import wait_until
from tests.e2e.queue_content import QueueContent, kept
from tests.e2e.received_points import arrived

KILLS = int(os.environ.get("PODGPU_E2E_KILLS", "20"))
"""Number of kills of podgpu; hundreds in a long run."""

SEED = int(os.environ.get("PODGPU_E2E_SEED", str(random.randrange(10_000))))

LONGEST = 3.0
"""Maximum lifetime of a podgpu in seconds; its start takes one."""

_AMBUSHES = 0.5
"""Fraction of kills that should happen between a request and its response."""

_PATIENCE = 1.0

RECEIVERS = ("there", "away", "comes", "killed")
"""States of the Collector during a run of podgpu."""


@dataclass(slots=True)
class KillScenario:
    """The course of the test, and the expected state."""

    collector: Collector
    pusher: Pusher
    queue: Path
    rng: random.Random
    before: QueueContent
    under_way: set[int] = field(default_factory=set)
    """Numbers of the requests whose responses may have been lost by a kill."""
    kills: dict[str, int] = field(default_factory=dict)
    runs_with_counts: int = 0
    """Number of runs in which podgpu served its counts."""
    largest: int = 0
    """Maximum number of queued points."""

    def run_and_kill(self) -> None:
        """Run podgpu for a while, and kill it."""
        receiver = self.rng.choice(RECEIVERS)
        self.prepare(up=receiver in {"there", "killed"})
        seconds = self.rng.uniform(0.3, LONGEST)
        half = self.rng.uniform(0, seconds)
        self.pusher.start(wait=False)
        time.sleep(half)
        # It serves no counts during its start.
        if account := self.pusher.account():
            assert account.recovered == self.before.points
            self.runs_with_counts += 1
        if receiver == "comes":
            self.collector.start()
        elif receiver == "killed":
            self._kill_collector()
        time.sleep(seconds - half)
        if self.rng.random() < _AMBUSHES:
            self._ambush()
        self.pusher.kill()
        self.kills[receiver] = self.kills.get(receiver, 0) + 1
        self.cut_off()
        now = kept(self.queue)
        check_grown(self.before, now)
        self.before = now
        self.largest = max(self.largest, now.points)

    def _ambush(self) -> None:
        """Wait until the Collector has received a request whose response podgpu may not have."""
        before, end = self.collector.size(), time.monotonic() + _PATIENCE
        while self.collector.size() == before and time.monotonic() < end:
            time.sleep(0)

    def prepare(self, *, up: bool) -> None:
        running = self.collector.process is not None and self.collector.process.running
        if up and not running:
            self.collector.start()
        elif running and not up:
            self.collector.stop()

    def _kill_collector(self) -> None:
        if self.rng.random() < _AMBUSHES:
            self._ambush()
        self.collector.kill()
        self.cut_off()

    def cut_off(self) -> None:
        """Record the number of the last request, once it is complete."""
        last = -1
        while (count := self.collector.count()) != last:
            last = count
            time.sleep(0.1)
        self.under_way.add(count - 1)


def check_grown(before: QueueContent, after: QueueContent) -> None:
    """Assert that counts do not decrease and that no point was rejected or dropped."""
    assert after.totals.appended >= before.totals.appended
    assert after.totals.acked >= before.totals.acked
    assert (after.totals.rejected, after.totals.dropped) == ({}, {})


@pytest.mark.timeout(180 + 15 * KILLS)
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_d3_queued_points_survive_kills(
    collector: Collector, tmp_path: Path, protocol: str
) -> None:
    queue = tmp_path / "queue"
    sink = push(collector.url(protocol), protocol, queue=queue)
    with pushing(tmp_path / "podgpu", {"otlp": sink}) as pusher:
        wait_until(collector.points, "points")
        pusher.kill()
        scenario = KillScenario(collector, pusher, queue, random.Random(SEED), kept(queue))
        scenario.cut_off()
        try:
            for _ in range(KILLS):
                scenario.run_and_kill()
            # The next run recovers exactly the points that are queued after the last kill.
            scenario.prepare(up=True)
            left = kept(queue)
            pusher.start()
            assert pusher.wait_account().recovered == left.points
            pusher.wait_drained(seconds=120)
            pusher.stop()
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}: {error}") from error
    assert scenario.runs_with_counts > 0
    final, found = kept(queue), arrived(collector.requests())
    check_grown(left, final)
    assert final.points == 0
    # Exactly the queued points have arrived.
    assert final.totals.appended == final.totals.acked == len(found.points)
    found.check_order()
    # Duplicates were in flight at a kill.
    assert found.resent <= scenario.under_way, (found.resent, scenario.under_way)
    kills = ", ".join(f"{count} with it {what}" for what, count in sorted(scenario.kills.items()))
    print(
        f"\nD3 by {protocol}, seed {SEED}: {KILLS} kills ({kills} at the receiver); "
        f"{len(found.points)} points in {found.requests} requests, none lost, "
        f"{len(found.duplicates)} twice from {len(found.resent)} requests; "
        f"{scenario.largest} waited at most"
    )
