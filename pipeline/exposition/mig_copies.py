"""Readings of a GPU that are repeated for each of its MIG instances (`mig_readings`).

The driver reports power, temperature, clocks and much else only for the whole GPU. dcgm-exporter
repeats these readings for each MIG instance, with the labels and the holder of the instance.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from pipeline.exposition.options import PageOptions
from pipeline.fields import Field
from pipeline.model import Attribution, Device


class MigCopies:
    """Decides for which devices a reading is shown.

    Attributes:
        carriers: uuids of the GPUs with MIG instances.

    Args:
        attributions: all devices, by uuid.
        options: options of the page.
    """

    def __init__(self, attributions: Mapping[str, Attribution], options: PageOptions) -> None:
        instances: defaultdict[str, list[str]] = defaultdict(list)
        for uuid, held in attributions.items():
            if held.device.mig is not None:
                instances[held.device.mig.parent_uuid].append(uuid)
        self._instances = instances
        copied = options.sharing == "copies" and options.containers
        mode = options.mig_readings
        self._mode = ("both" if copied else "gpu") if mode == "auto" else mode
        self.carriers: Collection[str] = instances.keys()

    def devices(self, device: Device, field: Field, *, own: bool) -> Sequence[str]:
        """Return the uuids of the devices for which a reading is shown.

        Args:
            device: the device that the reading is of.
            field: the field of the reading.
            own: whether the family has podgpu's prefix. dcgm-exporter does not have it, so it is
                not repeated.
        """
        instances = self._instances.get(device.uuid)
        if self._mode == "gpu" or own or field.mig or not instances:
            return (device.uuid,)
        return instances if self._mode == "instances" else (device.uuid, *instances)
