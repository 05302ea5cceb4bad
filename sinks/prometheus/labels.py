"""The labels of a device, and the families that say who holds it.

A device that one container holds carries that container's labels. A device that several hold
carries none of them: its readings are the device's, and a copy for each holder would make every sum
wrong. `podgpu_device_holder_info` names the holders, for joins.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from pipeline.model import NS, Attribution, Device, Holder
from sinks.prometheus import pods
from sinks.prometheus.options import Inline
from sinks.prometheus.text import labels, number

DCGM_ONLY = frozenset({"pci_bus_id", "modelName"})
"""Labels of dcgm-exporter's that our own families do without: `podgpu_device_info` has them once,
under names that Prometheus' linter takes."""

BASE_LABELS = (
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_PROFILE",
    "GPU_I_ID",
    "GPU_CI_ID",
    "Hostname",
)
"""What names a device, in the order of the page; the three in capitals stand on MIG instances."""

CONTAINER_LABELS = ("namespace", "pod", "container")
"""Who holds it; they end every line and are always there."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """An attribution's labels.

    Attributes:
        front: those that name the device, as dcgm-exporter does.
        own: those that name the device in our own families.
        back: those that name the container, after a comma.
        device: the line of `podgpu_device_info`.
        holders: lines of `podgpu_device_holder_info`.
        since: lines of `podgpu_device_holder_since_timestamp_seconds`.
        shares: lines of `podgpu_device_holder_share`.
        pods: lines of `podgpu_pod_info`; a pod that holds several devices has the same with each.
        conflicts: the line of `podgpu_attribution_conflicts`.
    """

    front: bytes
    own: bytes
    back: bytes
    device: bytes
    holders: tuple[bytes, ...]
    since: tuple[bytes, ...]
    shares: tuple[bytes, ...]
    pods: tuple[bytes, ...]
    conflicts: bytes


class LabelCache:
    """Renders each attribution once, for as long as somebody keeps the attribution.

    Args:
        node: the node's name.
        inline: what readings say of the pod besides the container's names.
    """

    def __init__(self, node: str, inline: Collection[Inline] = ()) -> None:
        self._node = node
        self._inline = inline
        self._rendered: WeakKeyDictionary[Attribution, Rendered] = WeakKeyDictionary()

    def __getitem__(self, attribution: Attribution) -> Rendered:
        found = self._rendered.get(attribution)
        if found is None:
            found = _render(attribution, self._node, self._inline)
            self._rendered[attribution] = found
        return found


def _render(attribution: Attribution, node: str, inline: Collection[Inline]) -> Rendered:
    device = attribution.device
    base = list(_base(device, node))
    own = labels((name, value) for name, value in base if name not in DCGM_ONLY)
    nobody = labels((name, "") for name in CONTAINER_LABELS)
    held: dict[bytes, Holder] = {}
    for holder in attribution.holders:
        held.setdefault(labels(_holder(holder)), holder)
    return Rendered(
        front=labels(base),
        own=own,
        back=b"," + labels(_back(_only(attribution.holders), inline)),
        device=b"podgpu_device_info{%b,%b,%b} 1\n" % (own, labels(_details(device)), nobody),
        holders=tuple(b"podgpu_device_holder_info{%b,%b} 1\n" % (own, holder) for holder in held),
        since=tuple(
            b"podgpu_device_holder_since_timestamp_seconds{%b,%b} %.3f\n"
            % (own, name, holder.since.wall_ns / NS)
            for name, holder in held.items()
        ),
        shares=tuple(
            b"podgpu_device_holder_share{%b,%b} %b\n" % (own, name, shown)
            for name, holder in held.items()
            if holder.share is not None and (shown := number(holder.share)) is not None
        ),
        pods=tuple(pods.line(h.pod, node) for h in held.values() if h.pod is not None),
        conflicts=b"podgpu_attribution_conflicts{%b,%b} %d\n"
        % (own, nobody, attribution.conflicts),
    )


def _only(holders: Iterable[Holder]) -> Holder | None:
    """Return the only container that holds the device; of several in one pod, none in particular.

    One that came back under another id is still the same container here.
    """
    named = {
        (h.subject.namespace, h.subject.pod or h.subject.uid, h.subject.container): h
        for h in holders
    }
    if len({(namespace, pod) for namespace, pod, _ in named}) != 1:
        return None
    only = next(iter(named.values()))
    if len(named) == 1:
        return only
    return replace(only, subject=replace(only.subject, container="", container_id=""))


def _back(only: Holder | None, inline: Collection[Inline]) -> Iterable[tuple[str, str]]:
    if only is None:
        # Empty, not missing: else a scraper that honours labels puts podgpu's own pod there.
        yield from ((name, "") for name in CONTAINER_LABELS)
        yield from pods.inline("", None, inline)
        return
    subject = only.subject
    names = (subject.namespace, subject.pod, subject.container)
    yield from zip(CONTAINER_LABELS, names, strict=True)
    yield from pods.inline(subject.uid, only.pod, inline)


def _base(device: Device, node: str) -> Iterable[tuple[str, str]]:
    mig = device.mig
    yield "gpu", _text(device.index)
    yield "UUID", device.gpu_uuid
    yield "pci_bus_id", device.pci_bus_id
    yield "device", f"nvidia{device.minor}" if device.minor is not None else ""
    yield "modelName", device.model
    if mig is not None:
        yield "GPU_I_PROFILE", mig.profile
        yield "GPU_I_ID", str(mig.gpu_instance_id)
        yield "GPU_CI_ID", str(mig.compute_instance_id)
    yield "Hostname", node


def _details(device: Device) -> Iterable[tuple[str, str]]:
    yield "model", device.model
    yield "pci_bus_id", device.pci_bus_id
    yield "driver", device.driver
    yield "index", _text(device.index)
    yield "minor", _text(device.minor)
    yield "mig_uuid", device.uuid if device.mig is not None else ""


def _holder(holder: Holder) -> Iterable[tuple[str, str]]:
    subject = holder.subject
    yield "namespace", subject.namespace
    yield "pod", subject.pod
    yield "container", subject.container
    yield "pod_uid", subject.uid
    yield "source", holder.source
    yield "evidence", holder.evidence.name.lower()


def _text(value: int | None) -> str:
    return "" if value is None else str(value)
