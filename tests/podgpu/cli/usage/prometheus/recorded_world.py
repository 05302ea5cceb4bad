"""What a server has of one pod that holds a GPU all the time, by hours."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podgpu.cli.usage.prometheus.coverage import DAY_MS, HOUR_MS
from podgpu.cli.usage.prometheus.recorded_series import HOUR_STEPS
from tests.podgpu.cli.usage.prometheus.api_server import Asked, Found

STEP_MS = 300_000
PHASE_MS = 130_000
"""How long after a multiple of five minutes the rules are evaluated."""

DEVICE = {"UUID": "GPU-0", "gpu": "0", "Hostname": "node-1", "cluster": "east"}
POD = {"namespace": "ml", "pod": "train-0", "pod_uid": "u"}


@dataclass(frozen=True, slots=True)
class Hour:
    """What there is of an hour.

    Attributes:
        summed: whether there is the sum of the hour.
        steps: how many records of five minutes there are, the first ones of the hour.
        counted: whether there are samples of the counters.
    """

    summed: bool = False
    steps: int = 0
    counted: bool = False


@dataclass(frozen=True)
class Owner:
    """A job or a container without a pod.

    Attributes:
        part: its part of what the pod of other tests has.
        labels: its labels in the counters.
        info: the labels of its description; empty without one.
    """

    part: float
    labels: Mapping[str, str]
    info: Mapping[str, str]


RECORDED = Hour(summed=True, steps=HOUR_STEPS, counted=True)


@dataclass(frozen=True)
class World:
    """What the server has.

    Attributes:
        hours: by start, in milliseconds.
        days: the starts of days of which there is a sum.
        names: other names of labels in the server.
        recorded: the clusters of which there are records.
        counted: the clusters of which there are counters.
        owners: jobs and containers that have the usage in place of the pod.
    """

    hours: Mapping[int, Hour]
    days: frozenset[int] = frozenset()
    names: tuple[tuple[str, str], ...] = ()
    recorded: tuple[str, ...] = ("east",)
    counted: tuple[str, ...] = ("east",)
    owners: tuple[Owner, ...] = ()

    def seconds(self, asked: Asked) -> float:
        """Return the held time that a query about a quantity sums up, without a share."""
        start, end = asked.at_ms - asked.window_ms, asked.at_ms
        records = {":sum1d": self._days, ":sum1h": self._hours, ":increase5m": self._steps}
        kind = next((name for name in records if f"{name}[" in asked.promql), None)
        if kind is None:
            assert ":5m]" in asked.promql, asked.promql
            found = self._counters()
        else:
            found = records[kind]()
        return sum(seconds for at, seconds in found if start < at <= end)

    def _days(self) -> Iterator[tuple[int, float]]:
        for day in self.days:
            yield day + DAY_MS + 10 * 60_000 + PHASE_MS, 86_400.0

    def _hours(self) -> Iterator[tuple[int, float]]:
        for at, hour in self.hours.items():
            if hour.summed:
                yield at + HOUR_MS + STEP_MS + PHASE_MS, 300.0 * hour.steps

    def _steps(self) -> Iterator[tuple[int, float]]:
        for at, hour in self.hours.items():
            for number in range(hour.steps):
                yield at + (number + 1) * STEP_MS + PHASE_MS, 300.0

    def _counters(self) -> Iterator[tuple[int, float]]:
        for at, hour in self.hours.items():
            for number in range(HOUR_STEPS * hour.counted):
                yield at + (number + 1) * STEP_MS, 300.0

    def evaluations(self, asked: Asked) -> float:
        """Return the number of evaluations in the window of a query."""
        start, end = asked.at_ms - asked.window_ms, asked.at_ms
        if "sum1d" in asked.promql:
            found = [(at, seconds / 300) for at, seconds in self._days()]
        elif "sum1h" in asked.promql:
            found = [(at, seconds / 300) for at, seconds in self._hours()]
        else:
            found = [(at, 1.0) for at, _ in self._steps()]
        return sum(count for at, count in found if start < at <= end)

    def answer(self, asked: Asked) -> Found:
        """Answer a query."""
        return [(self._labels(labels), value) for labels, value in self._answer(asked)]

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        names = dict(self.names)
        return {names.get(name, name): value for name, value in labels.items()}

    def _answer(self, asked: Asked) -> Found:
        promql = asked.promql
        if promql.startswith("topk"):
            return [(DEVICE, 1.0)]
        if promql.startswith("max(timestamp("):
            has_steps = any(hour.steps for hour in self.hours.values())
            return [({}, (STEP_MS * 1000 + PHASE_MS) / 1000)] if has_steps else []
        if promql.startswith("group by (cluster)"):
            clusters = self.recorded if "recorded_steps" in promql else self.counted
            return [({"cluster": name}, 1.0) for name in clusters]
        if "podgpu:recorded_steps" in promql:
            count = self.evaluations(asked)
            return [({}, count)] if count else []
        if promql.startswith("count(last_over_time"):
            start, end = asked.at_ms - asked.window_ms, asked.at_ms
            return [({}, 1.0)] if any(start < at <= end for at, _ in self._counters()) else []
        if "_info" in promql:
            return self._described(promql)
        seconds = self.seconds(asked)
        if not seconds:
            return []
        labels = DEVICE if re.match(r"max by \(Hostname", promql) else {**DEVICE, **POD}
        quantity = _QUANTITY.search(promql)
        assert quantity is not None, promql
        share = SHARES[quantity[1]]
        if "unless" in promql or not share:
            return []
        if not self.owners or labels is DEVICE:
            return [(labels, seconds * share)]
        return self._of_owners(promql, seconds * share)

    def _described(self, promql: str) -> Found:
        if "podgpu_device_info" in promql:
            return [(DEVICE | {"model": "NVIDIA H200"}, 1.0)]
        if "podgpu_pod_info" in promql:
            return [(POD | {"owner_kind": "Job", "owner_name": "train", "label_team": "nlp"}, 1.0)]
        return [(dict(one.info), 1.0) for one in self.owners]

    def _of_owners(self, promql: str, amount: float) -> Found:
        """Return what each owner has of an amount, by the labels of a query."""
        names = re.search(r"sum by \(([^)]*)\)", promql)
        assert names is not None, promql
        found: dict[tuple[tuple[str, str], ...], float] = {}
        for one in self.owners:
            kept = {**DEVICE, **one.labels}
            key = tuple(sorted((name, kept[name]) for name in names[1].split(", ") if name in kept))
            found[key] = found.get(key, 0.0) + amount * one.part
        return [(dict(key), value) for key, value in found.items()]


SHARES = {
    "container_held_seconds": 0.5,
    "container_busy_seconds": 0.25,
    "container_energy_joules": 400.0,
    "namespace_held_seconds": 0.5,
    "namespace_busy_seconds": 0.25,
    "namespace_energy_joules": 400.0,
    "namespace_unmeasured_seconds": 0.0,
    "device_accounted_seconds": 1.0,
    "device_free_seconds": 0.375,
    "device_unknown_held_seconds": 0.125,
    "device_busy_seconds": 0.3125,
    "device_unattributed_busy_seconds": 0.0625,
    "device_unattributed_energy_joules": 60.0,
}
"""A part of the time, or watts, of each quantity: the pod has half of the GPU."""

_QUANTITY = re.compile(r"podgpu[:_]((?:container|namespace|device)_\w+?)(?:_total|:)")
