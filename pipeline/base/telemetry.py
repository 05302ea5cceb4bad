"""podgpu's own metrics: the state of its sources, its join and its sinks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pipeline.model import Instant

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family of podgpu's own.

    Attributes:
        name: name as in the text exposition format, with `_total` for counters and the unit as
            suffix.
        help: one sentence.
        summary: whether the family has a sum and a count, and no quantiles.
        timestamped: whether it is a counter with the time of its last increase, which
            distinguishes a present loss from an old one.
    """

    name: str
    help: str
    summary: bool = False
    timestamped: bool = False

    @property
    def type(self) -> Literal["counter", "gauge", "summary"]:
        """The type; a name that ends with `_total` is that of a counter."""
        if self.summary:
            return "summary"
        return "counter" if self.name.endswith("_total") else "gauge"


@dataclass(frozen=True, slots=True)
class Point:
    """A sample of a family.

    Attributes:
        labels: names and values.
        value: the present value.
        suffix: `_sum` or `_count` for a summary, else empty.
        last_increase: when it last increased, for timestamped families; None if it never did
            or if that is unknown.
    """

    labels: Labels
    value: float
    suffix: str = ""
    last_increase: Instant | None = field(default=None, compare=False)


FamilyPoints: TypeAlias = tuple[Family, list[Point]]


@dataclass(frozen=True, slots=True)
class LastProblem:
    """The last problem of a component; it may be over.

    Attributes:
        text: a text for users.
        at: when it happened.
        warning: whether the component continued nevertheless. Then the end of the problem is not
            known.
    """

    text: str
    at: Instant
    warning: bool = False


Troubles: TypeAlias = Mapping[tuple[str, str], LastProblem]
"""Last problems by component: `source` or `sink`, and its name."""

FAMILIES: tuple[Family, ...] = (
    Family("podgpu_build_info", "Version of podgpu and of its Python; always 1."),
    Family("podgpu_source_up", "1 while the source works, 0 while it does not."),
    Family(
        "podgpu_source_age_seconds",
        "Time since the source last reported; no sample before its first report.",
    ),
    Family(
        "podgpu_attribution_age_seconds",
        "Time since the source last confirmed its reports about pods and holders.",
    ),
    Family("podgpu_source_events_total", "Events that the source has emitted."),
    Family("podgpu_source_restarts_total", "How often the source failed and was restarted."),
    Family(
        "podgpu_device_ids_unresolved",
        "Device ids in the source's claims that match no device now.",
    ),
    Family(
        "podgpu_unresolved_device_ids_total",
        "Device ids in the source's claims that matched no device of this node.",
    ),
    Family(
        "podgpu_sample_errors_total",
        "Readings that failed, by device and the driver's error; fields that the device does not "
        "support are not counted.",
    ),
    Family(
        "podgpu_source_dropped_total",
        "Values that the source received and could not use, by reason.",
    ),
    Family("podgpu_sink_up", "1 while the sink accepts snapshots, 0 while it does not."),
    Family(
        "podgpu_sink_dropped_total",
        "Readings that the sink did not pass on, and points that it gave up, by reason.",
        timestamped=True,
    ),
    Family(
        "podgpu_sink_emitted_total",
        "Readings that the sink passed on; for a sink with a queue, points that the receiver "
        "accepted.",
    ),
    Family(
        "podgpu_sink_requests_total",
        "Requests that the sink has sent to the API server, by method and result.",
    ),
    Family(
        "podgpu_sink_errors_total",
        "Errors of the sink other than dropped readings, by operation and reason.",
    ),
    Family(
        "podgpu_sink_archive_pending_rows",
        "Rows of a ledger that could be in its archive and are not; no sample before the first "
        "run of podgpu archive.",
    ),
    Family(
        "podgpu_sink_archive_written_timestamp_seconds",
        "When all closed hours of a ledger were last in its archive, in Unix time; 0 if they never "
        "were. No sample before the first run of podgpu archive.",
    ),
    Family("podgpu_config_reloads_total", "Attempts to apply a changed configuration, by result."),
    Family(
        "podgpu_config_reload_last_successful",
        "1 while the last change of the configuration and of its list of counters is in force, 0 "
        "while one of them could not be applied; no sample before the first attempt.",
    ),
    Family("podgpu_inbox_depth", "Events that wait for the join."),
    Family(
        "podgpu_gpus",
        "Physical GPUs: present are those that respond now, expected are all that were seen since "
        "podgpu started.",
    ),
    Family(
        "podgpu_topology_contradictions",
        "Pairs of GPUs that the driver reports further apart than its other reports allow; no "
        "sample if no topology is known.",
    ),
    Family(
        "podgpu_usage_left_out_containers",
        "Containers without a usage account because there are too many on a device; no sample if "
        "no source takes usage samples.",
    ),
    Family("process_cpu_seconds_total", "CPU time that podgpu has used."),
    Family("process_resident_memory_bytes", "Resident memory of podgpu."),
    Family("process_start_time_seconds", "Start time of podgpu, in Unix time."),
    Family("process_open_fds", "File descriptors that podgpu has open."),
)
"""All families of podgpu's own, in the order of the page. Components refer to them by name."""


@dataclass(slots=True)
class _Cell:
    """The value of a series; `count` is the number of a summary's observations."""

    value: float = 0.0
    count: int = 0
    last_increase: Instant | None = None


class Telemetry:
    """Holds the values that components report. The values outlive restarts of the components.

    Not thread-safe: use it in the event loop.

    Args:
        now: returns the present time; without it the last increase of counters is unknown.
        families: the families, in the order of the page; by default `FAMILIES`.

    Attributes:
        problems: the last problem of each component that had one.
    """

    def __init__(
        self,
        now: Callable[[], Instant] | None = None,
        families: Iterable[Family] = FAMILIES,
    ) -> None:
        self._now = now
        self._families = {family.name: family for family in families}
        self._values: dict[str, dict[Labels, _Cell]] = {}
        self.problems: dict[tuple[str, str], LastProblem] = {}

    def set_problem(self, owner: tuple[str, str], trouble: LastProblem) -> None:
        """Set the last problem of a component."""
        self.problems[owner] = trouble

    def add(self, family: str, amount: float, labels: Labels) -> None:
        """Increase a counter; an amount of 0 creates its series."""
        cell = self._cell(family, "counter", labels)
        cell.value += amount
        if amount and self._now is not None and self._families[family].timestamped:
            cell.last_increase = self._now()

    def set(self, family: str, value: float, labels: Labels) -> None:
        """Set a gauge."""
        self._cell(family, "gauge", labels).value = value

    def observe(self, family: str, value: float, labels: Labels) -> None:
        """Add an observation to a summary."""
        cell = self._cell(family, "summary", labels)
        cell.value += value
        cell.count += 1

    def forget(self, label: tuple[str, str]) -> None:
        """Remove the series and the last problem of a component that left the configuration."""
        self.problems.pop(label, None)
        for cells in self._values.values():
            for labels in [labels for labels in cells if label in labels]:
                del cells[labels]

    def _cell(self, family: str, kind: str, labels: Labels) -> _Cell:
        declared = self._families[family]
        if declared.type != kind:
            raise ValueError(f"{family} is a {declared.type}, not a {kind}")
        return self._values.setdefault(family, {}).setdefault(labels, _Cell())

    def collect(self, computed: Mapping[str, Iterable[Point]]) -> list[FamilyPoints]:
        """Return all families that have samples, in the order of the page.

        Args:
            computed: samples that the caller computes now (ages, metrics of the process).
        """
        families: list[FamilyPoints] = []
        for family in self._families.values():
            points = list(computed.get(family.name, ()))
            for labels, cell in self._values.get(family.name, {}).items():
                if family.type == "summary":
                    points.append(Point(labels, cell.value, "_sum"))
                    points.append(Point(labels, cell.count, "_count"))
                else:
                    points.append(Point(labels, cell.value, last_increase=cell.last_increase))
            if points:
                families.append((family, points))
        return families


class Meter:
    """A component's access to the telemetry: adds the label with the component's name."""

    def __init__(self, telemetry: Telemetry, role: Literal["source", "sink"], name: str) -> None:
        self._telemetry = telemetry
        self._component = (role, name)

    def add(self, family: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter, given by name of its family."""
        self._telemetry.add(family, amount, (self._component, *labels.items()))

    def set(self, family: str, value: float, **labels: str) -> None:
        """Set a gauge, given by name of its family."""
        self._telemetry.set(family, value, (self._component, *labels.items()))

    def observe(self, family: str, value: float, **labels: str) -> None:
        """Add an observation to a summary, given by name of its family."""
        self._telemetry.observe(family, value, (self._component, *labels.items()))

    def set_problem(self, text: str, at: Instant, *, warning: bool = False) -> None:
        """Set the last problem of the component, for users.

        Args:
            text: what happened.
            at: when it happened.
            warning: whether the component continued nevertheless; see
                `pipeline.component.warnings`.
        """
        self._telemetry.set_problem(self._component, LastProblem(text, at, warning))
