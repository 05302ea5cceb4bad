"""Attributes that identify a device."""

from pipeline.exposition.holder_labels import DCGM_ONLY, base, facts
from pipeline.exposition.naming import PageNaming
from pipeline.model import Attrs, Device
from sinks.otlp.encoding.attributes import Pairs, merged
from sinks.otlp.encoding.semconv import HW_TYPE, VENDOR


def semconv_attributes(device: Device, *, typed: bool) -> Pairs:
    """Return the attributes of a device in OpenTelemetry's semantic conventions.

    Args:
        device: its UUID is `hw.id`. A MIG instance also has the UUID of its GPU as `hw.parent`.
        typed: add `hw.type`.
    """
    mig = device.mig
    pairs: list[tuple[str, str | int]] = [("hw.id", device.uuid)]
    if typed:
        pairs.append(HW_TYPE)
    pairs += [("hw.name", _name(device)), ("hw.model", device.model), ("hw.vendor", VENDOR)]
    if mig is not None:
        pairs += [
            ("hw.parent", mig.parent_uuid),
            ("podgpu.mig.profile", mig.profile),
            ("podgpu.mig.gpu_instance.id", mig.gpu_instance_id),
        ]
        if mig.compute_instance_id is not None:
            pairs.append(("podgpu.mig.compute_instance.id", mig.compute_instance_id))
    return merged(pairs)


def constant_attributes(device: Device) -> Attrs:
    """Return constant attributes of the board. Only `hw.status` has them, to keep series small."""
    known = facts(device)
    return (
        ("hw.serial_number", known.get("serial", "")),
        ("hw.driver_version", known.get("driver_version", "")),
    )


def dcgm_attributes(device: Device, naming: PageNaming, *, own: bool) -> Pairs:
    """Return dcgm-exporter's labels of a device.

    Args:
        device: the device.
        naming: label names.
        own: for a metric of podgpu's own, which has fewer labels.
    """
    pairs = base(device, naming)
    if own:
        return merged((name, value) for name, value in pairs if name not in DCGM_ONLY)
    known = facts(device)
    return merged(pairs, ((label, known.get(fact, "")) for label, fact in naming.facts))


def _name(device: Device) -> str:
    """Return the name of the device node; for a MIG instance with its GI and CI number."""
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
