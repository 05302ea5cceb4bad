"""Turns results of queries into the usage rows and device totals of a report. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.model.claims import PartialRef
from pipeline.model.ledger_usage import ContainerIdentity, DeviceTotal, UsageRow
from podgpu.cli.usage.prometheus.recorded_series import UNMEASURED

_NS: Final = 10**9
_MJ: Final = 1000
_ROUNDING_SECONDS: Final = 0.01
"""Differences of sums up to this are errors of rounding."""

_WHOLES: Final = {
    "held_seconds": ("accounted_seconds", ("free_seconds", "unknown_held_seconds")),
    "busy_seconds": ("busy_seconds", ("unattributed_busy_seconds",)),
}
"""Quantities of a device, and those of its parts that belong to no container."""


class DeviceKey(NamedTuple):
    """A GPU by its uuid, or a MIG instance by the uuid of its GPU and its numbers."""

    gpu: str
    gpu_instance: str
    compute_instance: str

    @property
    def uuid(self) -> str:
        """The uuid of the GPU, or the placement of the MIG instance: `MIG-<GPU uuid>/7/0`."""
        if not self.gpu_instance:
            return self.gpu
        return f"MIG-{self.gpu}/{self.gpu_instance}/{self.compute_instance}"


class PodKey(NamedTuple):
    """A pod, a job or a container without a pod; in a report on namespaces without name and uid."""

    namespace: str
    pod: str = ""
    uid: str = ""


@dataclass(slots=True)
class _Facts:
    model: str = ""
    profile: str = ""
    index: int | None = None
    node: str = ""
    cluster: str = ""


@dataclass(slots=True)
class _PodFacts:
    name: str = ""
    owner: tuple[str, str] = ("", "")
    labels: dict[str, str] = field(default_factory=dict)


class UsageSums:
    """Sums of the results of all queries of a time, in seconds and joules."""

    def __init__(self) -> None:
        self._held: dict[tuple[DeviceKey, PodKey], dict[str, float]] = {}
        self._devices: dict[DeviceKey, dict[str, float]] = {}
        self._facts: dict[DeviceKey, _Facts] = {}
        self._pods: dict[str, _PodFacts] = {}

    @property
    def row_count(self) -> int:
        """Number of rows of containers."""
        return len(self._held)

    @property
    def without_model(self) -> bool:
        """Whether the model of a device is unknown."""
        return any(not facts.model for facts in self._facts.values())

    def add_held(
        self, quantity: str, labels: Mapping[str, str], value: float, cluster: str
    ) -> None:
        """Add a quantity of a namespace or pod on a device.

        Args:
            quantity: one of `OF_CONTAINERS`, or `UNMEASURED`.
            labels: labels of the result.
            value: the value, in seconds or joules.
            cluster: name of the label of the cluster.
        """
        name = labels.get("pod") or labels.get("hpc_job", "")
        uid = labels.get("pod_uid") or labels.get("owner_uid", "")
        pod = PodKey(labels.get("namespace", ""), name, uid)
        sums = self._held.setdefault((self._device(labels, cluster), pod), {})
        sums[quantity] = sums.get(quantity, 0.0) + value

    def add_device(
        self, quantity: str, labels: Mapping[str, str], value: float, cluster: str
    ) -> None:
        """Add a quantity of a device, as `add_held` does for a container."""
        sums = self._devices.setdefault(self._device(labels, cluster), {})
        sums[quantity] = sums.get(quantity, 0.0) + value

    def add_model(self, labels: Mapping[str, str]) -> None:
        """Set the model of a device that has usage, unless it is known already."""
        facts = self._facts.get(_key(labels))
        if facts is not None and not facts.model:
            facts.model = labels.get("model", "")

    def add_pod(self, labels: Mapping[str, str], label: tuple[str, str] | None) -> None:
        """Set the workload of a pod, and one of its labels. Later results have precedence.

        Args:
            labels: labels of `podgpu_pod_info`.
            label: the key of the pod's label, and the name of its label in the server.
        """
        facts = self._pods.setdefault(labels.get("pod_uid", ""), _PodFacts())
        if labels.get("owner_name"):
            facts.owner = labels.get("owner_kind", ""), labels["owner_name"]
        if label is not None and label[1] in labels:
            facts.labels[label[0]] = labels[label[1]]

    def add_owner(self, labels: Mapping[str, str]) -> None:
        """Set the workload of a job, or the name and workload of a container without a pod.

        Args:
            labels: labels of `podgpu_job_info` or `podgpu_podless_container_info`.
        """
        facts = self._pods.setdefault(labels.get("owner_uid", ""), _PodFacts())
        facts.name = labels.get("container", "") or facts.name
        for kind, label in (("User", "user"), ("ComposeProject", "compose_project")):
            if labels.get(label):
                facts.owner = kind, labels[label]

    def _device(self, labels: Mapping[str, str], cluster: str) -> DeviceKey:
        key = _key(labels)
        facts = self._facts.setdefault(key, _Facts())
        facts.profile = labels.get("GPU_I_PROFILE", "") or facts.profile
        facts.node = labels.get("Hostname", "") or facts.node
        facts.cluster = labels.get(cluster, "") or facts.cluster
        index = labels.get("gpu", "")
        facts.index = int(index) if index.isdecimal() else facts.index
        return key

    def rows(self, since_ns: int = 0) -> list[UsageRow]:
        """Return the usage rows, those of a device together, its unattributed usage last.

        Args:
            since_ns: start of the span of equal prices, in nanoseconds of Unix time.
        """
        found: list[UsageRow] = []
        for (device, pod), sums in sorted(self._held.items()):
            if not any(sums.values()):
                continue  # a pod that has ended, or whose account begins
            held, unmeasured = sums.get("held_seconds", 0.0), sums.get(UNMEASURED, 0.0)
            busy = sums.get("busy_seconds")
            known = busy is not None
            found.append(
                UsageRow(
                    device.uuid,
                    self._container(pod),
                    _ns(held),
                    _ns(busy) if busy is not None else None,
                    _mj(sums.get("energy_joules")),
                    busy_partial=known and unmeasured > 0,
                    energy_partial="energy_joules" in sums and unmeasured > 0,
                    held_without_busy_ns=_ns(unmeasured) if known else 0,
                    since_ns=since_ns,
                )
            )
        lost, lost_busy = self._lost("held_seconds"), self._lost("busy_seconds")
        for device, sums in sorted(self._devices.items()):
            busy = sums.get("unattributed_busy_seconds")
            unheld = sums.get("free_seconds", 0.0) + sums.get("unknown_held_seconds", 0.0)
            found.append(
                UsageRow(
                    device.uuid,
                    None,
                    _ns(unheld + lost.get(device, 0.0)),
                    None if busy is None else _ns(busy + lost_busy.get(device, 0.0)),
                    _mj(sums.get("unattributed_energy_joules")),
                    since_ns=since_ns,
                )
            )
        return found

    @property
    def lost_ns(self) -> int:
        """Time for which devices were held by containers that no sample shows."""
        return sum(map(_ns, self._lost("held_seconds").values()))

    def _lost(self, quantity: str) -> dict[DeviceKey, float]:
        """Return what devices have more than their containers and their unattributed usage.

        It is the usage of containers whose last samples the server does not have.

        Args:
            quantity: `held_seconds` or `busy_seconds`.
        """
        whole, rest = _WHOLES[quantity]
        found = {
            device: sums.get(whole, 0.0) - sum(sums.get(name, 0.0) for name in rest)
            for device, sums in self._devices.items()
            if whole in sums
        }
        for (device, _), sums in self._held.items():
            if device in found:
                found[device] -= sums.get(quantity, 0.0)
        return {device: lost for device, lost in found.items() if lost > _ROUNDING_SECONDS}

    def _container(self, pod: PodKey) -> ContainerIdentity:
        facts = self._pods.get(pod.uid, _PodFacts()) if pod.uid else _PodFacts()
        subject = PartialRef(namespace=pod.namespace, pod=pod.pod or facts.name, uid=pod.uid)
        labels = tuple(sorted(facts.labels.items()))
        return ContainerIdentity(subject, *facts.owner, labels)

    def totals(self, span_ns: int) -> list[DeviceTotal]:
        """Return the totals of the devices, sorted as in reports.

        Args:
            span_ns: the length of the time, of which a device may have no usage data.
        """
        energy: dict[DeviceKey, list[float]] = {}
        for (device, _), sums in self._held.items():
            if "energy_joules" in sums:
                energy.setdefault(device, []).append(sums["energy_joules"])
        lost = self._lost("held_seconds")
        found = []
        for device, facts in self._facts.items():
            sums = self._devices.get(device, {})
            busy, rest = sums.get("busy_seconds"), sums.get("unattributed_energy_joules")
            known = [*energy.get(device, ()), *([] if rest is None else [rest])]
            accounted_ns = _ns(sums.get("accounted_seconds", 0.0))
            found.append(
                DeviceTotal(
                    device.uuid,
                    f"{facts.model} {facts.profile}".strip(),
                    accounted_ns,
                    max(span_ns - accounted_ns, 0) if accounted_ns else 0,
                    None if busy is None else _ns(busy),
                    _mj(sum(known)) if known else None,
                    _ns(sums.get("unknown_held_seconds", 0.0) + lost.get(device, 0.0)),
                    device.gpu,
                    facts.index,
                    facts.profile,
                    facts.node,
                    facts.cluster,
                )
            )
        return sorted(found, key=lambda one: (one.cluster, one.node, one.order))


def _key(labels: Mapping[str, str]) -> DeviceKey:
    return DeviceKey(
        labels.get("UUID", ""), labels.get("GPU_I_ID", ""), labels.get("GPU_CI_ID", "")
    )


def _ns(seconds: float) -> int:
    return round(seconds * _NS)


def _mj(joules: float | None) -> int | None:
    return None if joules is None else round(joules * _MJ)


def combined(totals: Iterable[Sequence[DeviceTotal]]) -> list[DeviceTotal]:
    """Return the totals of devices over several times."""
    found: dict[str, DeviceTotal] = {}
    for one in (one for part in totals for one in part):
        first = found.get(one.device)
        found[one.device] = one if first is None else _added(first, one)
    return sorted(found.values(), key=lambda one: (one.cluster, one.node, one.order))


def _added(first: DeviceTotal, later: DeviceTotal) -> DeviceTotal:
    return DeviceTotal(
        first.device,
        later.name or first.name,
        first.accounted_ns + later.accounted_ns,
        first.gap_ns + later.gap_ns,
        _both(first.busy_ns, later.busy_ns),
        _both(first.energy_mj, later.energy_mj),
        first.unknown_ns + later.unknown_ns,
        first.gpu or later.gpu,
        first.index if later.index is None else later.index,
        later.profile or first.profile,
        later.node or first.node,
        later.cluster or first.cluster,
    )


def _both(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
