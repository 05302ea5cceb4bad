"""Turns a device id, as a source wrote it, into a device."""

from collections.abc import Iterable

from pipeline.model import Device, RawDeviceId


class DeviceIndex:
    """The node's devices by every id they go by.

    Index and minor number name physical GPUs alone. They are two numberings: on many nodes they
    differ, so a number is looked up in the one that its scheme names and in no other.
    """

    def __init__(self, devices: Iterable[Device]) -> None:
        self._by_id: dict[tuple[str, str], str] = {}
        for device in devices:
            # The driver writes uuids in lower case; people and tools don't always.
            self._by_id["uuid", device.uuid.lower()] = device.uuid
            if device.mig is not None:
                continue
            if device.minor is not None:
                self._by_id["minor", str(device.minor)] = device.uuid
            if device.index is not None:
                self._by_id["index", str(device.index)] = device.uuid

    def resolve(self, raw: RawDeviceId) -> str | None:
        """Return the uuid of the device that the id names; None if this node has no such device."""
        text = raw.text.lower() if raw.scheme == "uuid" else raw.text
        return self._by_id.get((raw.scheme, text))
