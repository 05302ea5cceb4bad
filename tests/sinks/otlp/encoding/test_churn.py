"""Pods that come and go: what is sent grows with those that are there, not with those that were."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator, Sequence

import pytest

from pipeline.delivery.contract import Acked, Outcome, Record
from pipeline.model import Snapshot
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.options import Temporality
from tests.pipeline.delivery.refusing import refuses
from tests.pipeline.delivery.support import Bench, Receiver, virtual
from tests.sinks.otlp.encoding.accounts import BUSY, ENERGY, HELD
from tests.sinks.otlp.encoding.churn import PLAN, Churn
from tests.sinks.otlp.encoding.support import Identity, Point, points

TOTALS = (BUSY, HELD, ENERGY)
SHARES = {
    "podgpu.device.unattributed.held": HELD,
    "podgpu.device.unattributed.busy": BUSY,
    "podgpu.device.unattributed.energy": ENERGY,
}


@pytest.mark.parametrize(("gpus", "per_second", "seconds"), [(4, 2, 100), (8, 20, 40)])
def test_r8_the_volume_does_not_grow_with_pods_that_are_gone(
    gpus: int, per_second: int, seconds: int
) -> None:
    """938 points a second came of 4 GPUs with a pod each 0.5 s after 90 s, where 89 do."""
    churn = Churn(gpus, per_second).run(seconds)
    first, last = churn.volume(10, 20), churn.volume(seconds - 10, seconds)
    assert last == pytest.approx(first, rel=0.02)
    assert last < 23 * gpus + 6 * per_second


def test_r8_a_hundred_pods_a_second_make_less_than_may_be_sent() -> None:
    churn = Churn(8, 100).run(12)
    assert churn.rate(2, 12) < (4 << 20) / 10
    assert churn.volume(7, 12) == pytest.approx(churn.volume(2, 7), rel=0.05)


def test_r8_final_values_are_sent_once_and_series_end_once() -> None:
    churn = Churn(2, 1).run(20)
    churn.stop()
    churn.run(330)
    values: defaultdict[Identity, list[object]] = defaultdict(list)
    ended: Counter[Identity] = Counter()
    living = set(churn.alive.values())
    for point in churn.pushed():
        if point.name in TOTALS and point.ended:
            ended[point.identity] += 1
        elif point.name in TOTALS:
            values[point.identity].append(point.value)
    for identity, given_out in values.items():
        if dict(identity[0])["k8s.pod.name"] in living:
            assert len(given_out) > 300
            assert identity not in ended
        else:
            assert len(given_out) <= 4, (
                "three looks at most while it was there, and the final value"
            )
            assert ended[identity] == 1


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_r8_nothing_of_what_was_used_is_missing(temporality: Temporality) -> None:
    """What was pushed of pods and of nobody comes to what the account has of the devices."""
    churn = Churn(2, 3, temporality=temporality).run(30)
    had: defaultdict[Identity, float] = defaultdict(float)
    for point in churn.pushed():
        if not point.ended and (point.name in TOTALS or point.name in SHARES):
            before = had[point.identity] if temporality == "delta" else 0
            had[point.identity] = before + float(point.value or 0)
    sums: defaultdict[str, float] = defaultdict(float)
    for (_, name, _), value in had.items():
        sums[SHARES.get(name, name)] += value
    usage = churn.node.snapshot().usage
    assert usage is not None
    devices = usage.devices.values()
    assert sums == pytest.approx(
        {
            HELD: sum(one.elapsed_ns for one in devices) / 1e9,
            BUSY: sum(one.busy_ns or 0 for one in devices) / 1e9,
            ENERGY: sum(one.energy_mj or 0 for one in devices) / 1e3,
        }
    )


def test_r8_a_receiver_that_is_added_later_gets_each_final_value_once() -> None:
    """Each sink has an encoder of its own; after a restart there is another one, too."""
    churn = Churn(2, 1).run(20)
    churn.stop()
    churn.run(1)
    late, given_out = Encoder("node-1", PLAN), Counter[Identity]()
    for _ in range(5):
        found = points(late.encode(churn.node.snapshot()))
        given_out.update(point.identity for point in found if point.name in TOTALS)
        churn.run(1)
    pods = {dict(identity[0])["k8s.pod.name"] for identity in given_out}
    assert pods == {f"pod-{number}" for number in range(19)}
    gone = [
        n
        for key, n in given_out.items()
        if dict(key[0])["k8s.pod.name"] not in churn.alive.values()
    ]
    assert set(gone) == {1}


def test_r8_a_restart_with_a_ledger_sends_each_final_value_once_more() -> None:
    """Whoever lacks it has it then: nobody knows whether the queue of the process before had it."""
    before = Churn(2, 1).run(20)
    before.stop()
    before.run(5)
    after = before.restarted().run(90)
    last = {point.identity: point for point in before.pushed() if point.name in TOTALS}
    given_out: defaultdict[Identity, list[Point]] = defaultdict(list)
    for point in after.pushed():
        if point.name in TOTALS:
            given_out[point.identity].append(point)
    assert given_out.keys() == last.keys()
    living = set(before.alive.values())
    for identity, points_ in given_out.items():
        if dict(identity[0])["k8s.pod.name"] in living:
            assert len(points_) == 90
        else:
            [point] = points_
            was = last[identity]
            assert (point.value, point.start) == (was.value, was.start)
            assert point.time > was.time


class Pushing(Receiver):
    """Sends what an encoder makes.

    Attributes:
        encoder: of this life; a process that is started again has another.
        taken: what the receiver took.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder("node-1", PLAN)
        self.taken: list[Record] = []

    def encode(self, snapshot: Snapshot) -> Iterator[Record]:
        yield from self.encoder.encode(snapshot)

    async def send(self, records: Sequence[Record]) -> Outcome:
        outcome = self.answer(records)
        assert not isinstance(outcome, Awaitable)
        if isinstance(outcome, Acked):
            self.taken += records
        return outcome


@virtual
async def test_r8_final_values_outlast_a_receiver_that_is_away_and_a_restart() -> None:
    """Each push fails while pods end; podgpu is started again before the receiver is back."""
    bench, churn, push = Bench(most_bytes=100_000), Churn(2, 1), Pushing()
    bench.push = push

    async def passes(seconds: int) -> None:
        for _ in range(seconds):
            churn.run(1)
            bench.inbox.offer(churn.node.snapshot())
            await bench.passes(1)

    push.answer = refuses()
    async with bench.life(afresh=True):
        await passes(20)
    push.encoder = Encoder("node-1", PLAN)
    async with bench.life(afresh=True):
        churn.stop()
        await passes(3)
        push.answer = lambda _: Acked()
        await bench.passes(60)
    assert bench.imbalance == bench.value("queued") == 0
    had = {
        (dict(point.resource).get("k8s.pod.name"), point.name): point.value
        for point in points(push.taken)
        if point.name in TOTALS and not point.ended
    }
    usage = churn.node.snapshot().usage
    assert usage is not None
    for device in usage.devices.values():
        for one in device.containers:
            assert had[one.subject.pod, HELD] == one.held_ns / 1e9
            assert had[one.subject.pod, ENERGY] == (one.energy_mj or 0) / 1e3
    assert len(had) == 19 * len(TOTALS)
