"""Labels that identify a device, and labels with the properties of the device."""

from collections.abc import Iterable, Mapping

from pipeline.exposition.naming import PageNaming
from pipeline.fields import LABELS
from pipeline.model import Device

DCGM_ONLY = frozenset({"pci_bus_id", "modelName"})
"""Labels of dcgm-exporter that podgpu's own families do not have. `podgpu_device_info` has them
once, under names that follow Prometheus' conventions."""


def base(device: Device, naming: PageNaming) -> Iterable[tuple[str, str]]:
    """Yield the labels that identify a device, in the order of the page."""
    mig, model = device.mig, device.model
    yield "gpu", _text(device.index)
    yield naming.names.uuid, device.gpu_uuid
    yield "pci_bus_id", device.pci_bus_id
    yield "device", f"nvidia{device.minor}" if device.minor is not None else ""
    yield "modelName", "-".join(model.split()) if naming.options.replace_model_blanks else model
    if mig is not None:
        yield "GPU_I_PROFILE", mig.profile
        yield "GPU_I_ID", str(mig.gpu_instance_id)
        if mig.compute_instance_id is not None:
            yield "GPU_CI_ID", str(mig.compute_instance_id)
    yield from naming.on_node


def details(device: Device) -> Iterable[tuple[str, str]]:
    """Yield the additional labels of `podgpu_device_info`."""
    yield "model", device.model
    yield "pci_bus_id", device.pci_bus_id
    yield "driver", device.driver
    yield "index", _text(device.index)
    yield "minor", _text(device.minor)
    yield "mig_uuid", device.uuid if device.mig is not None else ""


def facts(device: Device) -> Mapping[str, str]:
    """Return the constant text fields in the order of the catalogue; empty where unknown."""
    known = dict(device.facts)
    known.setdefault("driver_version", device.driver)
    known.setdefault("name", device.model)
    return {field.name: known.get(field.name, "") for field in LABELS}


def _text(value: int | None) -> str:
    return "" if value is None else str(value)
