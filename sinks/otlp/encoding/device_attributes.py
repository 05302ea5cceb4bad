"""The attributes that name a device on a point."""

from pipeline.exposition.device_labels import DCGM_ONLY, base, facts
from pipeline.exposition.naming import PageNaming
from pipeline.model import Device
from sinks.otlp.encoding.attributes import Pairs, merged
from sinks.otlp.encoding.semconv import HW_TYPE, VENDOR


def semconv_attributes(device: Device, *, typed: bool) -> Pairs:
    """Return what the conventions call a device.

    Args:
        device: its uuid is `hw.id`, for a MIG instance too; that has its GPU as `hw.parent`.
        typed: with `hw.type`.
    """
    mig = device.mig
    named: list[tuple[str, str | int]] = [("hw.id", device.uuid)]
    if typed:
        named.append(HW_TYPE)
    named += [("hw.name", _name(device)), ("hw.model", device.model), ("hw.vendor", VENDOR)]
    if mig is not None:
        named += [
            ("hw.parent", mig.parent_uuid),
            ("podgpu.mig.profile", mig.profile),
            ("podgpu.mig.gpu_instance.id", mig.gpu_instance_id),
        ]
        if mig.compute_instance_id is not None:
            named.append(("podgpu.mig.compute_instance.id", mig.compute_instance_id))
    return merged(named)


def constant_attributes(device: Device) -> Pairs:
    """Return what never changes of a board: on `hw.status` alone, not to be on all series."""
    known = facts(device)
    return (
        ("hw.serial_number", known.get("serial", "")),
        ("hw.driver_version", known.get("driver_version", "")),
    )


def dcgm_attributes(device: Device, style: PageNaming, *, own: bool) -> Pairs:
    """Return dcgm-exporter's labels of a device.

    Args:
        device: the device.
        style: of the page that the names are those of.
        own: for a metric of podgpu's own, which has fewer of them.
    """
    named = base(device, style)
    if own:
        return merged((name, value) for name, value in named if name not in DCGM_ONLY)
    known = facts(device)
    return merged(named, ((label, known.get(fact, "")) for label, fact in style.facts))


def _name(device: Device) -> str:
    """Return the device node's name; for a MIG instance with its place, as the driver has it."""
    if device.minor is not None:
        name = f"nvidia{device.minor}"
    elif device.index is not None:
        name = f"gpu{device.index}"
    else:
        return ""
    mig = device.mig
    if mig is None:
        return name
    name = f"{name}/gi{mig.gpu_instance_id}"
    return name if mig.compute_instance_id is None else f"{name}/ci{mig.compute_instance_id}"
