"""podgpu's own metrics: how its sources, its join and its sinks are doing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pipeline.model import Instant

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric of podgpu's own.

    Attributes:
        name: as in text exposition, with `_total` on a counter and the base unit as suffix.
        type: `summary` has a sum and a count and no quantiles.
        help: one sentence.
    """

    name: str
    type: Literal["counter", "gauge", "summary"]
    help: str


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a family.

    Attributes:
        labels: names and values.
        value: as it is now.
        suffix: `_sum` or `_count` for a summary, else empty.
        last_increase: when it last rose, of a family among `TIMESTAMPED`; None where it never did,
            or where nobody noted it.
    """

    labels: Labels
    value: float
    suffix: str = ""
    last_increase: Instant | None = field(default=None, compare=False)


FamilyPoints: TypeAlias = tuple[Family, list[Point]]


@dataclass(frozen=True, slots=True)
class LastProblem:
    """What went wrong with a component last; it may be over.

    Attributes:
        text: for people.
        at: when.
        warning: the component went on all the same, so that nothing tells when it is over.
    """

    text: str
    at: Instant
    warning: bool = False


Troubles: TypeAlias = Mapping[tuple[str, str], LastProblem]
"""By component: `source` or `sink`, and its name."""

FAMILIES: tuple[Family, ...] = (
    Family("podgpu_build_info", "gauge", "Version of podgpu and of its Python; always 1."),
    Family("podgpu_source_up", "gauge", "1 while the source does its work, 0 while it can't."),
    Family(
        "podgpu_source_age_seconds",
        "gauge",
        "Time since the source last reported; no sample before its first report.",
    ),
    Family(
        "podgpu_attribution_age_seconds",
        "gauge",
        "Time since the source last stood by what it says of pods and holders.",
    ),
    Family("podgpu_source_events_total", "counter", "Events that the source has emitted."),
    Family(
        "podgpu_source_restarts_total",
        "counter",
        "How often the source failed and was started again.",
    ),
    Family(
        "podgpu_source_requests_total",
        "counter",
        "Requests that the source has sent, by method and by result.",
    ),
    Family(
        "podgpu_device_ids_unresolved",
        "gauge",
        "Device ids in the source's claims that fit no device now.",
    ),
    Family(
        "podgpu_unresolved_device_ids_total",
        "counter",
        "Device ids in the source's claims that fit no device of this node.",
    ),
    Family(
        "podgpu_sample_duration_seconds",
        "summary",
        "Time that one round of readings took, from the first call to the last.",
    ),
    Family(
        "podgpu_sample_errors_total",
        "counter",
        "Readings that failed, by device and by the driver's error; fields that the device doesn't "
        "have are not counted.",
    ),
    Family(
        "podgpu_samples_skipped_total",
        "counter",
        "Rounds of readings left out because the one before had not ended.",
    ),
    Family(
        "podgpu_source_dropped_total",
        "counter",
        "Values that the source was given and could not use, by reason.",
    ),
    Family("podgpu_sink_up", "gauge", "1 while the sink takes snapshots, 0 while it can't."),
    Family(
        "podgpu_sink_dropped_total",
        "counter",
        "Readings that the sink never handed on, and points that it gave up, by reason.",
    ),
    Family(
        "podgpu_sink_emitted_total",
        "counter",
        "Readings that the sink handed on; of a sink that sends, points that its receiver took.",
    ),
    Family(
        "podgpu_sink_produced_total",
        "counter",
        "Points that a sink which sends has made of what it was given.",
    ),
    Family(
        "podgpu_sink_produced_bytes_per_second",
        "gauge",
        "Bytes that a sink which sends made in a second of the last minute; no sample in the "
        "first.",
    ),
    Family(
        "podgpu_sink_recovered_total",
        "counter",
        "Points that waited in the sink's queue when it was opened, from a life before.",
    ),
    Family(
        "podgpu_sink_rejected_total",
        "counter",
        "Points that the receiver refused for good, by reason.",
    ),
    Family("podgpu_sink_queued", "gauge", "Points that wait in the sink's queue."),
    Family("podgpu_sink_queue_bytes", "gauge", "Space that the sink's queue takes."),
    Family(
        "podgpu_sink_queue_writable",
        "gauge",
        "1 while the queue's disk takes data, 0 while memory has to do instead.",
    ),
    Family(
        "podgpu_sink_oldest_age_seconds",
        "gauge",
        "Age of the oldest data in the sink's queue; 0 while it is empty.",
    ),
    Family(
        "podgpu_sink_delivering",
        "gauge",
        "1 while the receiver takes what the sink sends, 0 while it doesn't; no sample before the "
        "first message.",
    ),
    Family(
        "podgpu_sink_retries_total",
        "counter",
        "Messages that have to be sent again, by reason.",
    ),
    Family(
        "podgpu_sink_requests_total",
        "counter",
        "Requests that the sink has sent to the API server, by method and by result.",
    ),
    Family(
        "podgpu_sink_errors_total",
        "counter",
        "What the sink failed to do besides handing on readings, by operation and by reason.",
    ),
    Family(
        "podgpu_config_reloads_total",
        "counter",
        "Attempts to take over a changed configuration, by result.",
    ),
    Family(
        "podgpu_config_reload_last_successful",
        "gauge",
        "1 while the configuration and its list of counters are in force as they were changed "
        "last, 0 while one of them was not taken over; no sample before the first attempt.",
    ),
    Family("podgpu_inbox_depth", "gauge", "Events that wait for the join."),
    Family(
        "podgpu_gpus",
        "gauge",
        "Physical GPUs: present, which are those that answer now, and expected, which are all that "
        "were seen since podgpu started.",
    ),
    Family(
        "podgpu_topology_contradictions",
        "gauge",
        "Pairs of GPUs that the driver puts further apart than its other answers allow; no sample "
        "where no topology is known.",
    ),
    Family(
        "podgpu_usage_left_out_containers",
        "gauge",
        "Containers that are left out of account because there are too many on a device; no sample "
        "where nobody tells who uses devices.",
    ),
    Family(
        "podgpu_extender_up",
        "gauge",
        "1 while the extender follows the cluster's Nodes, 0 while it answers by what it heard "
        "before.",
    ),
    Family(
        "podgpu_extender_nodes",
        "gauge",
        "Nodes that the extender knows, by what they say of their topology.",
    ),
    Family(
        "podgpu_extender_requests_total",
        "counter",
        "Questions of the scheduler, by verb and by result.",
    ),
    Family(
        "podgpu_extender_request_duration_seconds",
        "summary",
        "Time that the answer to a question of the scheduler took.",
    ),
    Family("process_cpu_seconds_total", "counter", "Processor time that podgpu has used."),
    Family("process_resident_memory_bytes", "gauge", "Memory that podgpu occupies."),
    Family("process_start_time_seconds", "gauge", "When podgpu started, in Unix time."),
    Family("process_open_fds", "gauge", "File descriptors that podgpu has open."),
)
"""Every family of podgpu's own, in the order of the page. A component adds to one by its name."""

_BY_NAME = {family.name: family for family in FAMILIES}

TIMESTAMPED: Final = frozenset({"podgpu_sink_dropped_total", "podgpu_sink_rejected_total"})
"""Counters of which it is known when they last rose: who looks has to tell a loss of now from one
of long ago, and the count alone doesn't say."""


@dataclass(slots=True)
class _Cell:
    """What is known of a series; `count` is of a summary's observations."""

    value: float = 0.0
    count: int = 0
    rose: Instant | None = None


class Telemetry:
    """Holds the values of `FAMILIES` that components report; survives their restarts.

    Not thread-safe: use it from the event loop.

    Args:
        now: returns the present moment; without it no counter tells when it last rose.
    """

    def __init__(self, now: Callable[[], Instant] | None = None) -> None:
        self._now = now
        self._values: dict[str, dict[Labels, _Cell]] = {}
        self._troubles: dict[tuple[str, str], LastProblem] = {}

    @property
    def problems(self) -> Troubles:
        """The last trouble of each component that had any: a view, which changes."""
        return MappingProxyType(self._troubles)

    def set_problem(self, owner: tuple[str, str], trouble: LastProblem) -> None:
        """Keep what went wrong with a component, in the place of what went wrong before."""
        self._troubles[owner] = trouble

    def add(self, family: str, amount: float, labels: Labels) -> None:
        """Raise a counter; an amount of 0 makes its series exist."""
        cell = self._cell(family, "counter", labels)
        cell.value += amount
        if amount and self._now is not None and family in TIMESTAMPED:
            cell.rose = self._now()

    def set(self, family: str, value: float, labels: Labels) -> None:
        """Set a gauge."""
        self._cell(family, "gauge", labels).value = value

    def observe(self, family: str, value: float, labels: Labels) -> None:
        """Add an observation to a summary."""
        cell = self._cell(family, "summary", labels)
        cell.value += value
        cell.count += 1

    def forget(self, label: tuple[str, str]) -> None:
        """Drop every series that carries the label: its component left the configuration."""
        self._troubles.pop(label, None)
        for cells in self._values.values():
            for labels in [labels for labels in cells if label in labels]:
                del cells[labels]

    def _cell(self, family: str, kind: str, labels: Labels) -> _Cell:
        if _BY_NAME[family].type != kind:
            raise ValueError(f"{family} is a {_BY_NAME[family].type}, not a {kind}")
        cells = self._values.setdefault(family, {})
        cell = cells.get(labels)
        if cell is None:
            cell = cells[labels] = _Cell()
        return cell

    def collect(self, computed: Mapping[str, Iterable[Point]]) -> list[FamilyPoints]:
        """Return all families that have points.

        Args:
            computed: points that the caller works out at this moment (ages, process figures).
        """
        families: list[FamilyPoints] = []
        for family in FAMILIES:
            points = list(computed.get(family.name, ()))
            for labels, cell in self._values.get(family.name, {}).items():
                if family.type == "summary":
                    points.append(Point(labels, cell.value, "_sum"))
                    points.append(Point(labels, cell.count, "_count"))
                else:
                    points.append(Point(labels, cell.value, last_increase=cell.rose))
            if points:
                families.append((family, points))
        return families


class Meter:
    """A component's hold on the telemetry: adds the label that names the component."""

    def __init__(self, telemetry: Telemetry, role: Literal["source", "sink"], name: str) -> None:
        self._telemetry = telemetry
        self._own = (role, name)

    def add(self, family: str, amount: float = 1, **labels: str) -> None:
        """Raise a counter by its family's name."""
        self._telemetry.add(family, amount, (self._own, *labels.items()))

    def set(self, family: str, value: float, **labels: str) -> None:
        """Set a gauge by its family's name."""
        self._telemetry.set(family, value, (self._own, *labels.items()))

    def observe(self, family: str, value: float, **labels: str) -> None:
        """Add an observation to a summary by its family's name."""
        self._telemetry.observe(family, value, (self._own, *labels.items()))

    def set_problem(self, text: str, at: Instant, *, warning: bool = False) -> None:
        """Tell what went wrong, for people who look at the component.

        Args:
            text: what it was.
            at: when.
            warning: the component goes on all the same; see `pipeline.component.warnings`.
        """
        self._telemetry.set_problem(self._own, LastProblem(text, at, warning))
