"""A node on which pods start and end, and the records that an encoder makes of it."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from pipeline.delivery.contract import Record
from pipeline.fields import FieldPlan
from pipeline.model import NS, DeviceUse, PartialRef, ProcessesSampled, ProcessUse, TotalsRestored
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.options import Temporality
from tests.sinks.otlp.encoding.support import Point, points
from tests.support.nodes import Node, at, claim, every_field, gpu

PLAN = FieldPlan(["gpu_utilization", "memory_used_bytes", "power_watts"])


def _container(pod: str) -> PartialRef:
    return PartialRef("ml", pod, "main", f"u-{pod}")


class Churn:
    """Pods that hold a GPU each, one after another, and a usage sample of all GPUs each second.

    Attributes:
        alive: pods that hold a GPU now, by the GPU's index.
        records: the records of each usage sample and since the one before, by second.

    Args:
        gpus: number of GPUs.
        per_second: pods that start in a second; each replaces the pod that has held its GPU
            longest.
        temporality: temporality of counters.
    """

    def __init__(
        self, gpus: int, per_second: float, *, temporality: Temporality = "cumulative"
    ) -> None:
        self.devices = [gpu(index) for index in range(gpus)]
        self.node = Node()
        self.node.has(*self.devices)
        self.per_second = per_second
        self.encoder = Encoder("node-1", PLAN, temporality=temporality)
        self.alive: dict[int, str] = {}
        self.records: defaultdict[int, list[Record]] = defaultdict(list)
        self._started = 0
        self._energy = 0
        self._sampled: int | None = None

    def run(self, seconds: int) -> "Churn":
        """Run for this number of seconds."""
        first = 0 if self._sampled is None else self._sampled + 1
        for second in range(first, first + seconds):
            self._second(second)
        return self

    def stop(self) -> None:
        """Start no more pods."""
        self.per_second = 0

    def restarted(self) -> "Churn":
        """Return the same node after a restart of podgpu with a ledger."""
        usage = self.node.snapshot().usage
        assert usage is not None
        restarted_churn = Churn(len(self.devices), self.per_second)
        restarted_churn.node.seconds = self.node.seconds
        restarted_churn.node.say(TotalsRestored(tuple(usage.devices.values())), "ledger", "ledger")
        restarted_churn.node.has(*self.devices)
        restarted_churn.alive, restarted_churn._started = dict(self.alive), self._started
        restarted_churn._energy, restarted_churn._sampled = self._energy, self._sampled
        return restarted_churn

    def pushed(self) -> Iterator[Point]:
        """Yield all points so far."""
        for records in self.records.values():
            yield from points(records)

    def volume(self, since: int, until: int) -> float:
        """Return the points per second in a range of seconds."""
        seconds = range(since, until)
        return sum(r.points for s in seconds for r in self.records[s]) / len(seconds)

    def rate(self, since: int, until: int) -> float:
        """Return the bytes per second in a range of seconds."""
        seconds = range(since, until)
        return sum(len(r.data) for s in seconds for r in self.records[s]) / len(seconds)

    def _second(self, second: int) -> None:
        last = self._sampled
        while self._started < self.per_second * second:
            self.node.seconds = self._started / self.per_second
            self.alive[self._started % len(self.devices)] = f"pod-{self._started}"
            self._started += 1
            self._claim()
            self._push(second)
        self.node.seconds = second
        self._claim()
        self._energy += 300_000
        self.node.say(ProcessesSampled(tuple(self._uses(last))))
        self._sampled = second
        self.node.reads(*every_field(self.devices, at(second), PLAN))
        self._push(second)

    def _claim(self) -> None:
        pod_claims = [
            (_container(pod), claim(pod, self.devices[at].uuid)) for at, pod in self.alive.items()
        ]
        self.node.podlist(*(replace(one, subject=subject) for subject, one in pod_claims))

    def _uses(self, last: int | None) -> Iterator[DeviceUse]:
        now = at(self.node.seconds)
        for index, device in enumerate(self.devices):
            pod = self.alive.get(index)
            owner = None if pod is None else _container(pod)
            busy = None if last is None else NS // 2
            use = ProcessUse(1000 + index, 5, owner, "compute", 1 << 30, busy)
            since = None if last is None else at(last)
            yield DeviceUse(
                device.uuid, now, since, (use,), 2 << 30, 0, busy, self._energy, 15 * NS
            )

    def _push(self, second: int) -> None:
        self.records[second] += self.encoder.encode(self.node.snapshot())
