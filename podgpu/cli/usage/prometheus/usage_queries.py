"""The queries for the usage in a time: one for each quantity.

Pure. The records of an hour or a day have the time of an evaluation shortly after its end. Times of
queries are chosen so that the start of a window is between two records: whether a window includes a
sample at its start depends on the server's release.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from podgpu.cli.usage.prometheus.coverage import HOUR_MS, Chunk, Level
from podgpu.cli.usage.prometheus.recorded_series import (
    ACCOUNTED,
    CONTAINER,
    DAY,
    DEVICE,
    HOUR,
    OF_CONTAINER,
    OF_CONTAINERS,
    OF_DEVICE,
    OF_DEVICES,
    OF_NAMESPACE,
    STEP,
    STEP_SECONDS,
    STEPS,
    UNMEASURED,
    container_growth,
    container_rule,
    device_growth,
    device_rule,
    milliseconds,
    namespace_rule,
    steps_rule,
)

_STEP_MS: Final = STEP_SECONDS * 1000
_AFTER_RECORDS_MS: Final = 30 * 60_000
"""Sums of an hour and a day are recorded within a quarter of an hour after its end."""

_LAST_STEP_MS: Final = _STEP_MS - 1
"""The first evaluation after a time is the last one that belongs to the time before."""

OF_CONTAINER_IDENTITY: Final = f"namespace, pod, pod_uid, hpc_job, owner_uid, {OF_DEVICE}"

_NAMES: Final = re.compile(r"\b(UUID|Hostname|namespace|pod|container)\b(?!:)")
_OLD: Final = {
    "UUID": "uuid",
    "namespace": "pod_namespace",
    "pod": "pod_name",
    "container": "container_name",
}


@dataclass(frozen=True, slots=True)
class LabelNames:
    """The names of labels in the server's data, by their names in the label form `dcgm`.

    docs/sinks/prometheus.md, "Label forms".
    """

    names: Mapping[str, str]

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self:
        """Return the names of the label form that a series of a device has."""
        names = {}
        if "UUID" not in labels and "uuid" in labels:
            names = dict(_OLD)
        if "Hostname" not in labels and "hostname" in labels:
            names["Hostname"] = "hostname"
        return cls(names)

    def renamed(self, query: str) -> str:
        """Return a query with the names of the server."""
        if not self.names:
            return query
        return _NAMES.sub(lambda found: self.names.get(found[0], found[0]), query)

    def known(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of a result with the names of the form `dcgm`."""
        back = {new: old for old, new in self.names.items()}
        return {back.get(name, name): value for name, value in labels.items()}


@dataclass(frozen=True, slots=True)
class Query:
    """An instant query.

    Attributes:
        promql: the query.
        at_ms: its time, in milliseconds of Unix time.
    """

    promql: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class UsageQueries:
    """The queries of a report.

    Attributes:
        now_ms: the present time; no query is about a later one.
        cluster: the label that names the cluster of a node.
        of_containers: whether the results are of pods, and not of namespaces only.
        late_ms: by how much the growth of counters ends before a multiple of five minutes.
    """

    now_ms: int
    cluster: str
    of_containers: bool
    late_ms: int = 0

    def of_containers_in(self, chunk: Chunk) -> dict[str, Query]:
        """Return the queries for the quantities of `OF_CONTAINERS` and `UNMEASURED`."""
        return {
            name: self._query(self._held_by(name, chunk), chunk)
            for name in (*OF_CONTAINERS, UNMEASURED)
        }

    def of_devices_in(self, chunk: Chunk) -> dict[str, Query]:
        """Return the queries for the quantities of `OF_DEVICES`."""
        return {
            name: self._query(
                f"max by ({OF_DEVICE}, {self.cluster}) ({self._device_sum(name, chunk)})", chunk
            )
            for name in OF_DEVICES
        }

    def clusters(self, metric: str, at_ms: int) -> Query:
        """Return the query for the clusters that have a metric in the hour before a time."""
        found = f"group by ({self.cluster}) (last_over_time({metric}[1h]))"
        return Query(found, min(at_ms, self.now_ms))

    def models(self, at_ms: int) -> Query:
        """Return the query for the models of devices that were there in the hour before a time."""
        labels = f"{DEVICE}, model, {self.cluster}"
        info = f"max by ({labels}) (last_over_time(podgpu_device_info[1h]))"
        return Query(info, min(at_ms, self.now_ms))

    def pods(self, chunk: Chunk, label: str) -> Query:
        """Return the query for the workloads of pods, and for one of their labels if not empty."""
        labels = "pod_uid, owner_kind, owner_name" + (f", {label}" if label else "")
        window = self._window(chunk)
        info = f'max by ({labels}) (last_over_time(podgpu_pod_info{{pod_uid!=""}}[{window}]))'
        return Query(info, self._at(chunk))

    def owners(self, chunk: Chunk) -> Query:
        """Return the query for users of jobs, and for names and projects of podless containers."""
        labels = "owner_uid, user, container, compose_project"
        window = self._window(chunk)
        of_each = (
            f'max by ({labels}) (last_over_time({family}{{owner_uid!=""}}[{window}]))'
            for family in ("podgpu_job_info", "podgpu_podless_container_info")
        )
        return Query(" or ".join(of_each), self._at(chunk))

    def _held_by(self, name: str, chunk: Chunk) -> str:
        window = self._window(chunk)
        labels = OF_CONTAINER_IDENTITY if self.of_containers else OF_NAMESPACE
        if (period := _PERIODS.get(chunk.level)) is not None:
            recorded = f"sum_over_time({namespace_rule(name, period)}[{window}])"
            return f"max by ({labels}, {self.cluster}) ({recorded})"
        quantity = "held_seconds" if name == UNMEASURED else name
        value = self._container_sum(quantity, chunk)
        if name == UNMEASURED:
            measured = f"sum_over_time({container_rule('busy_seconds')}[{window}])"
            if chunk.level is Level.COUNTERS:
                measured = f"last_over_time(podgpu_container_busy_seconds_total[{window}])"
            value = f"{value} unless on ({CONTAINER}, {DEVICE}) {measured}"
        return (
            f"sum by ({labels}, {self.cluster}) (max by ({OF_CONTAINER}, {self.cluster}) ({value}))"
        )

    def _container_sum(self, quantity: str, chunk: Chunk) -> str:
        window = self._window(chunk)
        if chunk.level is Level.COUNTERS:
            grown = container_growth(quantity, self.late_ms)
            return f"sum_over_time(({grown})[{window}:{STEP}])"
        return f"sum_over_time({container_rule(quantity)}[{window}])"

    def _device_sum(self, quantity: str, chunk: Chunk) -> str:
        window = self._window(chunk)
        if chunk.level is Level.COUNTERS:
            return f"sum_over_time(({device_growth(quantity, self.late_ms)})[{window}:{STEP}])"
        period = _PERIODS.get(chunk.level, f"increase{STEP}")
        return f"sum_over_time({device_rule(quantity, period)}[{window}])"

    def _query(self, promql: str, chunk: Chunk) -> Query:
        return Query(promql, self._at(chunk))

    def _at(self, chunk: Chunk) -> int:
        return min(chunk.end_ms + _after(chunk), self.now_ms)

    def _window(self, chunk: Chunk) -> str:
        return milliseconds(self._at(chunk) - chunk.start_ms - _after(chunk))


def _after(chunk: Chunk) -> int:
    return _AFTER_RECORDS_MS if chunk.level in _PERIODS else _LAST_STEP_MS


_PERIODS: Final = {Level.HOURS: HOUR, Level.DAYS: DAY}

DEVICE_SERIES: Final = f"topk(1, last_over_time({ACCOUNTED}[1h]))"
RECORDED_DEVICE_SERIES: Final = (
    f"topk(1, sum_over_time({device_rule('accounted_seconds')}[1d])) or "
    f"topk(1, sum_over_time({device_rule('accounted_seconds', HOUR)}[1d]))"
)
"""A series of a device, for the names of its labels."""

LAST_EVALUATION: Final = f"max(timestamp({STEPS}))"
"""The time of an evaluation, in seconds of Unix time."""


@dataclass(frozen=True, slots=True)
class CoverageQuery:
    """A range query about what the server has recorded.

    Attributes:
        promql: the query.
        period_ms: the time that a value is about, which is also the step.
        after_ms: how long after the end of that time the value's time is.
        of_unfinished: whether an hour that has not ended has a value too.
    """

    promql: str
    period_ms: int
    after_ms: int
    of_unfinished: bool = False

    def unfinished(self, window_ms: int) -> str:
        """Return the query about the beginning of an hour."""
        return self.promql.replace("[1h]", f"[{milliseconds(window_ms)}]")


DAYS_RECORDED: Final = CoverageQuery(
    f"min(sum_over_time({steps_rule(DAY)}[1d]))", 24 * HOUR_MS, _AFTER_RECORDS_MS
)
HOURS_RECORDED: Final = CoverageQuery(
    f"min(sum_over_time({steps_rule(HOUR)}[1h]))", HOUR_MS, _AFTER_RECORDS_MS
)
# Rules of earlier releases have no series that counts the evaluations.
STEPS_RECORDED: Final = CoverageQuery(
    f"min(count_over_time({STEPS}[1h])) "
    f"or max(count_over_time({device_rule('accounted_seconds')}[1h]))",
    HOUR_MS,
    _LAST_STEP_MS,
    of_unfinished=True,
)
COUNTED: Final = CoverageQuery(
    f"count(last_over_time({ACCOUNTED}[1h]))", HOUR_MS, _LAST_STEP_MS, of_unfinished=True
)
