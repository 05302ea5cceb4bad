"""podgpu is killed again and again, the Collector now and then: every point is accounted for."""

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.collector import Collector
from tests.e2e.otlp_podgpu import Pusher, push, pushing
from tests.e2e.processes import wait_until
from tests.e2e.queue_content import Kept, kept
from tests.e2e.received_points import arrived

KILLS = int(os.environ.get("PODGPU_E2E_KILLS", "20"))
"""How often podgpu is killed; a long run has hundreds."""

SEED = int(os.environ.get("PODGPU_E2E_SEED", str(random.randrange(10_000))))

LONGEST = 3.0
"""Seconds that it lives at most; it takes one to begin."""

_AMBUSHES = 0.5
"""Of the kills, so many come between a request and its answer, if they can."""

_PATIENCE = 1.0

RECEIVERS = ("there", "away", "comes", "killed")
"""What the Collector is while podgpu lives."""


@dataclass(slots=True)
class Story:
    """What was done, and what may come of it."""

    collector: Collector
    pusher: Pusher
    queue: Path
    rng: random.Random
    before: Kept
    under_way: set[int] = field(default_factory=set)
    """Numbers of the requests that a kill may have cut off from their answers."""
    kills: dict[str, int] = field(default_factory=dict)
    looked: int = 0
    """Lives that were old enough to tell how they were doing."""
    largest: int = 0
    """Points that waited at most."""

    def life(self) -> None:
        """Let it live for a while, and kill it."""
        receiver = self.rng.choice(RECEIVERS)
        self.prepare(up=receiver in {"there", "killed"})
        seconds = self.rng.uniform(0.3, LONGEST)
        half = self.rng.uniform(0, seconds)
        self.pusher.start(wait=False)
        time.sleep(half)
        # It says nothing while it begins.
        if account := self.pusher.account():
            assert account.recovered == self.before.points
            self.looked += 1
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
        """Wait until the Collector has just taken something, of which podgpu may not know yet."""
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
        """Note which request is the last one, once it has come whole."""
        last = -1
        while (count := self.collector.count()) != last:
            last = count
            time.sleep(0.1)
        self.under_way.add(count - 1)


def check_grown(before: Kept, after: Kept) -> None:
    """Make sure that nothing that was counted is forgotten, and that nothing was given up."""
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
        story = Story(collector, pusher, queue, random.Random(SEED), kept(queue))
        story.cut_off()
        try:
            for _ in range(KILLS):
                story.life()
            # What waits after the last kill is found by the next life, to the point.
            story.prepare(up=True)
            left = kept(queue)
            pusher.start()
            assert pusher.wait_account().recovered == left.points
            pusher.wait_drained(seconds=120)
            pusher.stop()
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}: {error}") from error
    assert story.looked > 0
    final, found = kept(queue), arrived(collector.requests())
    check_grown(left, final)
    assert final.points == 0
    # Neither more nor less: what was queued has come, and what has come was queued.
    assert final.totals.appended == final.totals.acked == len(found.points)
    found.check_order()
    # What came twice was under way at a kill, and is the same in all that it says.
    assert found.resent <= story.under_way, (found.resent, story.under_way)
    kills = ", ".join(f"{count} with it {what}" for what, count in sorted(story.kills.items()))
    print(
        f"\nD3 by {protocol}, seed {SEED}: {KILLS} kills ({kills} at the receiver); "
        f"{len(found.points)} points in {found.requests} requests, none lost, "
        f"{len(found.again)} twice from {len(found.resent)} requests; "
        f"{story.largest} waited at most"
    )
