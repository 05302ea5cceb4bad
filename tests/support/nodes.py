"""Build nodes for tests: devices, readings, and snapshots from the real join."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pipeline.fields import FieldPlan
from pipeline.join import Join
from pipeline.model import (
    NS,
    Attrs,
    Claim,
    ClaimsReplaced,
    Device,
    DeviceAliasesReplaced,
    DevicesDiscovered,
    Envelope,
    Event,
    Evidence,
    Instant,
    MigPlace,
    Origin,
    PartialRef,
    ProcessList,
    RawDeviceId,
    Reading,
    SamplesTaken,
    Snapshot,
    Value,
)

START = Instant(1_000 * NS, 1_800_000_000 * NS)


def at(seconds: float) -> Instant:
    """Return the time a number of seconds after `START`."""
    return Instant(START.mono_ns + round(seconds * NS), START.wall_ns + round(seconds * NS))


def uuid_of(index: int) -> str:
    return f"GPU-{index:08x}-5eed-4a5e-9c0d-000000000000"


def gpu(index: int, minor: int | None = None) -> Device:
    return Device(
        uuid=uuid_of(index),
        index=index,
        minor=index if minor is None else minor,
        pci_bus_id=f"00000000:{index + 1:02X}:00.0",
        model="NVIDIA H100 80GB HBM3",
        driver="580.159.04",
    )


def mig(parent: Device, gi: int, ci: int = 0, profile: str = "1g.10gb") -> Device:
    return Device(
        uuid=f"MIG-{parent.index or 0:08x}-{gi:04x}-{ci:04x}-9c0d-000000000000",
        index=parent.index,
        minor=parent.minor,
        pci_bus_id=parent.pci_bus_id,
        model=parent.model,
        driver=parent.driver,
        mig=MigPlace(parent.uuid, gi, ci, profile),
    )


def reading(
    device: Device | str,
    field: str,
    value: Value,
    *,
    attrs: Attrs = (),
    when: Instant = START,
    good_for: float = 15,
) -> Reading:
    uuid = device if isinstance(device, str) else device.uuid
    return Reading(uuid, field, attrs, value, None, when, round(good_for * NS))


def claim(
    pod: str,
    *ids: str,
    namespace: str = "ml",
    container: str = "main",
    evidence: Evidence = Evidence.POD_LIST_FILE,
    scheme: str = "uuid",
    share: float | None = None,
) -> Claim:
    return Claim(
        PartialRef(namespace, pod, container),
        tuple(RawDeviceId(scheme, text) for text in ids),  # type: ignore[arg-type]
        share,
        None,
        Origin(evidence),
    )


def kubelet_claim(
    pod: str, *ids: str, container: str = "main", resource: str = "nvidia.com/gpu"
) -> Claim:
    """Return a claim as the source `podresources` makes it."""
    return Claim(
        PartialRef("ml", pod, container),
        tuple(RawDeviceId("plugin", text) for text in ids),
        None,
        None,
        Origin(Evidence.KUBELET_IDS),
        resource,
    )


DRA_POOL = "gpu.nvidia.com/node-1/"
"""Driver and pool of the devices in `dra_names`."""


def dra_names(devices: Mapping[str, str]) -> DeviceAliasesReplaced:
    """Return the names in ResourceSlices that never change, with the uuids that they mean."""
    return DeviceAliasesReplaced(
        tuple((RawDeviceId("dra", DRA_POOL + name), uuid) for name, uuid in devices.items())
    )


def dra_claim(pod: str, resource_claim: str, *names: str, container: str = "main") -> Claim:
    """Return the kubelet's claim of a container with a ResourceClaim."""
    made = kubelet_claim(pod, container=container, resource="")
    devices = tuple(RawDeviceId("dra", DRA_POOL + name) for name in names)
    return replace(made, devices=devices, resource_claim=f"ml/{resource_claim}")


def claims(*listed: Claim, good_for: float = 300) -> ClaimsReplaced:
    return ClaimsReplaced(listed, round(good_for * NS))


class Node:
    """A node that passes events to a join; `seconds` is the time of the next event."""

    def __init__(self) -> None:
        self.join = Join()
        self.seconds = 0.0
        self._seq = 0

    def say(self, event: Event, source: str = "gpus", kind: str = "nvml", via: str = "") -> bool:
        """Apply an event now; return whether it changed anything."""
        self._seq += 1
        envelope = Envelope(source, kind, self._seq, at(self.seconds), event, via)
        return self.join.apply(envelope).changed

    def has(self, *devices: Device) -> None:
        self.say(DevicesDiscovered(devices))

    def reads(self, *readings: Reading, processes: Sequence[ProcessList] = ()) -> None:
        self.say(SamplesTaken(readings, tuple(processes)))

    def podlist(self, *listed: Claim) -> None:
        self.say(claims(*listed), "podlist", "podlist")

    def snapshot(self) -> Snapshot:
        return self.join.snapshot(at(self.seconds))


def every_field(
    devices: Iterable[Device], when: Instant = START, plan: FieldPlan | None = None
) -> list[Reading]:
    """Return a plausible reading of every field of a plan, by default all, for each device."""
    sample_attrs = {
        "xid": "79",
        "reason": "sw_power_cap",
        "kind": "compute",
        "pid": "4242",
        "clock_event": "power_cap",
        "window_size_in_ms": "300000",
        "peer_gpu": "1",
        "link_status": "OK",
        "direction": "tx",
        "link": "0",
    }
    return [
        reading(
            device,
            field.name,
            1.5 if field.unit == "watts" else 3 * (1 << 20),
            attrs=tuple((name, sample_attrs[name]) for name in field.attrs),
            when=when,
        )
        for device in devices
        for field in (plan or FieldPlan.everything()).fields
        if device.mig is None or field.mig
    ]
