"""The usage metrics: how to read their values from the accounts, and their lines on the page.

All sinks use this table. Accounts count in integers (bytes, nanoseconds, millijoules), which are
divided by a divisor to get the unit of the metric. The lines are rendered once for each usage
sample and layout, not for each round of readings. Values are exact decimals, so that the parts on
the page add up to the total.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from pipeline.exposition.holder_labels import LabelCache
from pipeline.exposition.owner_labels import holder_names, identity_labels
from pipeline.exposition.text_format import Format, header, labels
from pipeline.model import (
    NS,
    Attribution,
    ContainerUsage,
    DeviceUsage,
    Layout,
    PartialRef,
    Snapshot,
    Usage,
    split_error_ns,
)

Account = TypeVar("Account", ContainerUsage, DeviceUsage)

_MODEL: Final = "estimated: idle power by held time, the rest by busy time"


@dataclass(frozen=True, slots=True)
class Quantity(Generic[Account]):
    """A metric with one value per account.

    Attributes:
        metric: name of the metric in Prometheus.
        kind: type of the metric.
        about: help text, one sentence.
        value: function that returns the value of an account; None if it is unknown.
        divisor: divide the value by this number to get the unit of the metric.
        of_time: whether the value counts held, free or accounted time. A GPU with MIG instances
            does not have such a metric.
    """

    metric: str
    kind: Literal["gauge", "counter"]
    about: str
    value: Callable[[Account], int | None]
    divisor: int = 1
    of_time: bool = False


def _seconds(
    metric: str, about: str, value: Callable[[Account], int | None], *, of_time: bool = False
) -> Quantity[Account]:
    return Quantity(metric, "counter", about, value, NS, of_time)


CONTAINER_BUSY_ERROR: Final[Quantity[ContainerUsage]] = Quantity(
    "podgpu_container_busy_error_seconds",
    "gauge",
    "By how much podgpu_container_busy_seconds_total may be wrong, because the device is shared; "
    "0 if the container was its only user.",
    lambda used: split_error_ns(used.contested_ns, used.switching_ns),
    NS,
)
"""Bound of the error of a container's busy time. The bound of a sum is less than the sum of bounds:
calculate it from the sums of contested and switching time."""

CONTAINER: Final[tuple[Quantity[ContainerUsage], ...]] = (
    Quantity(
        "podgpu_container_memory_used_bytes",
        "gauge",
        "Device memory used by the container's processes.",
        lambda used: used.memory_bytes,
    ),
    _seconds(
        "podgpu_container_busy_seconds_total",
        "Time during which the container's processes kept the device busy.",
        lambda used: used.busy_ns,
    ),
    CONTAINER_BUSY_ERROR,
    _seconds(
        "podgpu_container_contested_busy_seconds_total",
        "Busy time of the container that may belong to other users of the device.",
        lambda used: used.contested_ns,
    ),
    _seconds(
        "podgpu_container_switching_seconds_total",
        "Busy time of the container in which the device may have switched between its users.",
        lambda used: used.switching_ns,
    ),
    _seconds(
        "podgpu_container_held_seconds_total",
        "Time during which the container held the device, multiplied by its share.",
        lambda used: used.held_ns,
    ),
    Quantity(
        "podgpu_container_energy_joules_total",
        "counter",
        f"Energy of the GPU attributed to the container ({_MODEL}).",
        lambda used: used.energy_mj,
        1000,
    ),
)
"""Metrics of a container on a device."""

CONTAINER_XIDS: Final[Quantity[ContainerUsage]] = Quantity(
    "podgpu_container_xid_errors_total",
    "counter",
    "XID errors on the device while the container held or used it; no series before the first.",
    lambda used: sum(count for _, count in used.xids),
)
"""XID errors of a container on a device. Sinks split the errors by code, in the label `xid`. A code
that never occurred has no sample."""

DEVICE: Final[tuple[Quantity[DeviceUsage], ...]] = (
    Quantity(
        "podgpu_device_unattributed_memory_used_bytes",
        "gauge",
        "Device memory in use, neither of a known container nor reserved by the driver.",
        lambda used: used.memory_unattributed_bytes,
    ),
    _seconds(
        "podgpu_device_unattributed_busy_seconds_total",
        "Time during which the device was busy with work of no known container.",
        lambda used: used.busy_unattributed_ns,
    ),
    _seconds(
        "podgpu_device_unattributed_held_seconds_total",
        "Time during which no known container held the device, multiplied by the share not held.",
        lambda used: used.unheld_ns,
        of_time=True,
    ),
    _seconds(
        "podgpu_device_free_seconds_total",
        "Time during which the device was free, multiplied by the free share.",
        lambda used: used.unheld_ns - used.unknown_ns,
        of_time=True,
    ),
    _seconds(
        "podgpu_device_unknown_held_seconds_total",
        "Time during which it is unknown who held the device, multiplied by the unknown share.",
        lambda used: used.unknown_ns,
        of_time=True,
    ),
    Quantity(
        "podgpu_device_unattributed_energy_joules_total",
        "counter",
        f"Energy of the GPU attributed to no known container ({_MODEL}).",
        lambda used: used.energy_unattributed_mj,
        1000,
    ),
    _seconds(
        "podgpu_device_busy_seconds_total",
        "Time during which any process kept the device busy.",
        lambda used: used.busy_ns,
    ),
    _seconds(
        "podgpu_device_accounted_seconds_total",
        "Time covered by the usage account of the device, without gaps.",
        lambda used: used.elapsed_ns,
        of_time=True,
    ),
)
"""Metrics of a device."""

Family: TypeAlias = Quantity[ContainerUsage] | Quantity[DeviceUsage]

USAGE_FAMILIES: Final[tuple[Family, ...]] = (*CONTAINER, CONTAINER_XIDS, *DEVICE)
"""All usage metrics, in the order of the page."""


def accounts(
    snapshot: Snapshot,
) -> Iterator[tuple[Attribution, DeviceUsage, tuple[Quantity[DeviceUsage], ...]]]:
    """Yield the usage account of each known device, and the metrics to show for it.

    A GPU with MIG instances is held through its instances, so held and free time of the GPU have no
    meaning. The metrics with `of_time` are left out for such a GPU.

    Args:
        snapshot: the snapshot to read; it may have no usage.
    """
    if snapshot.usage is None:
        return
    attributions = snapshot.layout.attributions
    carriers = {
        held.device.mig.parent_uuid for held in attributions.values() if held.device.mig is not None
    }
    without_time = tuple(quantity for quantity in DEVICE if not quantity.of_time)
    for uuid, used in snapshot.usage.devices.items():
        attribution = attributions.get(uuid)
        if attribution is not None:
            yield attribution, used, without_time if uuid in carriers else DEVICE


class UsageFamilies:
    """Renders the families of usage metrics.

    Args:
        cache: the rendered labels of attributions.
    """

    def __init__(self, cache: LabelCache) -> None:
        self._cache = cache
        self._naming = cache.naming
        no_holder = ((name, "") for name in self._naming.names.holder)
        # Empty values: a scraper with honor_labels would set missing labels to podgpu's pod.
        self._unattributed_labels = (
            b"," + labels(no_holder) if self._naming.options.containers else b""
        )
        self._usage: Usage | None = None
        self._layout: Layout | None = None
        self._lines: tuple[bytes, ...] = (b"",) * len(USAGE_FAMILIES)
        self._labels: dict[tuple[bytes, PartialRef], bytes] = {}  # those of the last usage

    def body(self, form: Format, snapshot: Snapshot) -> bytes:
        """Return the lines of the families; empty if no source reports usage."""
        if snapshot.usage is not self._usage or snapshot.layout is not self._layout:
            self._usage, self._layout = snapshot.usage, snapshot.layout
            self._lines = tuple(self._render(snapshot))
        return b"".join(
            header(form, family.metric, family.kind, family.about) + lines
            for family, lines in zip(USAGE_FAMILIES, self._lines, strict=True)
            if lines
        )

    def _render(self, snapshot: Snapshot) -> Iterator[bytes]:
        before, self._labels = self._labels, {}
        containers: list[tuple[bytes, Sequence[ContainerUsage]]] = []
        devices: dict[Quantity[DeviceUsage], list[tuple[bytes, Sequence[DeviceUsage]]]]
        devices = {family: [] for family in DEVICE}
        for attribution, used, families in accounts(snapshot):
            own = self._cache[attribution].own_labels
            # Several containers have the same labels if their visible names are equal.
            by_labels: dict[bytes, list[ContainerUsage]] = {}
            for one in used.containers:
                key = own, one.subject
                label_text = before.get(key) or self._label_text(own, one.subject)
                self._labels[key] = label_text
                by_labels.setdefault(label_text, []).append(one)
            containers += by_labels.items()
            for family in families:
                devices[family].append((own + self._unattributed_labels, (used,)))
        for of_container in CONTAINER:
            yield _lines(of_container, containers)
        yield _xid_lines(containers)
        for family, rows in devices.items():
            yield _lines(family, rows)

    def _label_text(self, own: bytes, subject: PartialRef) -> bytes:
        names = zip(self._naming.names.holder, holder_names(subject), strict=True)
        return b"%b,%b" % (own, labels((*names, *identity_labels(subject))))


def _lines(family: Quantity[Account], rows: Iterable[tuple[bytes, Sequence[Account]]]) -> bytes:
    name, divisor = family.metric.encode(), family.divisor
    digits = len(str(divisor)) - 1
    read = family.value
    lines: list[bytes] = []
    for label_text, group in rows:
        known = [value for one in group if (value := read(one)) is not None]
        if known:
            value = known[0] if len(known) == 1 else sum(known)
            lines.append(b"%b{%b} %b\n" % (name, label_text, _decimal(value, divisor, digits)))
    return b"".join(lines)


def _xid_lines(rows: Iterable[tuple[bytes, Sequence[ContainerUsage]]]) -> bytes:
    name = CONTAINER_XIDS.metric.encode()
    lines: list[bytes] = []
    for label_text, group in rows:
        counts: Counter[int] = Counter()
        for one in group:
            counts.update(dict(one.xids))
        for code, count in counts.items():
            lines.append(b'%b{%b,xid="%d"} %d\n' % (name, label_text, code, count))
    return b"".join(lines)


def _decimal(value: int, divisor: int, digits: int) -> bytes:
    whole, rest = divmod(value, divisor)
    return b"%d.%0*d" % (whole, digits, rest) if rest else b"%d" % whole
