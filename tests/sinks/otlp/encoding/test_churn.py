"""Pods that start and end: the sent volume grows with the current pods, not with ended ones."""

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


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "per_second", "seconds"), [(4, 2, 60), (8, 20, 30)])
def test_r8_the_volume_does_not_grow_with_ended_pods(
    gpus: int, per_second: int, seconds: int
) -> None:
    """A former version sent 938 points a second after 90 s (4 GPUs, 2 pods/s); now it is 107."""
    churn = Churn(gpus, per_second).run(seconds)
    first, last = churn.volume(10, 20), churn.volume(seconds - 10, seconds)
    assert last == pytest.approx(first, rel=0.02)
    assert last < 26 * gpus + 9 * per_second


@pytest.mark.slow
def test_r8_a_hundred_pods_a_second_stay_below_the_sending_rate() -> None:
    churn = Churn(8, 100).run(8)
    assert churn.rate(2, 8) < (4 << 20) / 10
    assert churn.volume(5, 8) == pytest.approx(churn.volume(2, 5), rel=0.05)


@pytest.mark.slow
def test_r8_final_values_and_ends_of_series_are_sent_once() -> None:
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
    for identity, numbers in values.items():
        if dict(identity[0])["k8s.pod.name"] in living:
            assert len(numbers) > 300
            assert identity not in ended
        else:
            assert len(numbers) <= 4, "at most three samples while the pod ran, and the final value"
            assert ended[identity] == 1


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_r8_sent_totals_sum_to_the_totals_of_the_devices(temporality: Temporality) -> None:
    """The points of pods and the unattributed points sum to the accounts of the devices."""
    churn = Churn(2, 3, temporality=temporality).run(15)
    latest: defaultdict[Identity, float] = defaultdict(float)
    for point in churn.pushed():
        if not point.ended and (point.name in TOTALS or point.name in SHARES):
            before = latest[point.identity] if temporality == "delta" else 0
            latest[point.identity] = before + float(point.value or 0)
    sums: defaultdict[str, float] = defaultdict(float)
    for (_, name, _), value in latest.items():
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


def test_r8_a_sink_that_is_added_later_sends_each_final_value_once() -> None:
    """Each sink has its own encoder, and a restart makes a new one."""
    churn = Churn(2, 1).run(20)
    churn.stop()
    churn.run(1)
    late, counts = Encoder("node-1", PLAN), Counter[Identity]()
    for _ in range(5):
        found = points(late.encode(churn.node.snapshot()))
        counts.update(point.identity for point in found if point.name in TOTALS)
        churn.run(1)
    pods = {dict(identity[0])["k8s.pod.name"] for identity in counts}
    assert pods == {f"pod-{number}" for number in range(19)}
    ended_counts = [
        n for key, n in counts.items() if dict(key[0])["k8s.pod.name"] not in churn.alive.values()
    ]
    assert set(ended_counts) == {1}


@pytest.mark.slow
def test_r8_after_a_restart_with_a_ledger_final_values_are_sent_again() -> None:
    """The receiver may lack them: it is unknown whether the old process delivered its queue."""
    before = Churn(2, 1).run(20)
    before.stop()
    before.run(5)
    after = before.restarted().run(90)
    last = {point.identity: point for point in before.pushed() if point.name in TOTALS}
    sent: defaultdict[Identity, list[Point]] = defaultdict(list)
    for point in after.pushed():
        if point.name in TOTALS:
            sent[point.identity].append(point)
    assert sent.keys() == last.keys()
    living = set(before.alive.values())
    for identity, points_ in sent.items():
        if dict(identity[0])["k8s.pod.name"] in living:
            assert len(points_) == 90
        else:
            [point] = points_
            before_restart = last[identity]
            assert (point.value, point.start) == (before_restart.value, before_restart.start)
            assert point.time > before_restart.time


class RecordingReceiver(Receiver):
    """A receiver that keeps what it accepts.

    Attributes:
        encoder: the encoder of the current process; a restart makes a new one.
        accepted_records: the records that the receiver accepted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder("node-1", PLAN)
        self.accepted_records: list[Record] = []

    def encode(self, snapshot: Snapshot) -> Iterator[Record]:
        yield from self.encoder.encode(snapshot)

    async def send(self, records: Sequence[Record]) -> Outcome:
        outcome = self.answer(records)
        assert not isinstance(outcome, Awaitable)
        if isinstance(outcome, Acked):
            self.accepted_records += records
        return outcome


@virtual
async def test_r8_final_values_survive_an_outage_and_a_restart() -> None:
    """Each request fails while pods end; podgpu restarts before the receiver works again."""
    bench, churn, receiver = Bench(most_bytes=100_000), Churn(2, 1), RecordingReceiver()
    bench.push = receiver

    async def run(seconds: int) -> None:
        for _ in range(seconds):
            churn.run(1)
            bench.inbox.offer(churn.node.snapshot())
            await bench.wait(1)

    receiver.answer = refuses()
    async with bench.life(new_object=True):
        await run(20)
    receiver.encoder = Encoder("node-1", PLAN)
    async with bench.life(new_object=True):
        churn.stop()
        await run(3)
        receiver.answer = lambda _: Acked()
        await bench.wait(60)
    assert bench.imbalance == bench.value("queued") == 0
    latest = {
        (dict(point.resource).get("k8s.pod.name"), point.name): point.value
        for point in points(receiver.accepted_records)
        if point.name in TOTALS and not point.ended
    }
    usage = churn.node.snapshot().usage
    assert usage is not None
    for device in usage.devices.values():
        for one in device.containers:
            assert latest[one.subject.pod, HELD] == one.held_ns / 1e9
            assert latest[one.subject.pod, ENERGY] == (one.energy_mj or 0) / 1e3
    assert len(latest) == 19 * len(TOTALS)
