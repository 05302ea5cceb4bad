"""XID errors as they are reported to the join, for those whom they strike."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from pipeline.component.xid_rate_limit import XidRateLimit
from pipeline.model import Device, XidReport
from sources.nvml.xid_watch import XidEvent

_WAITING: Final = 1024
"""Errors that wait to be told."""


class XidReports:
    """Errors that are to be told, a bounded number of them; what is beyond is counted elsewhere.

    They outlive the source: what it couldn't tell before it had to stop is told by the next.
    """

    def __init__(self) -> None:
        self._rates = XidRateLimit()
        self._pending: deque[XidReport] = deque()

    def add(self, seen: XidEvent, devices: Iterable[Device]) -> bool:
        """Note an error.

        Args:
            seen: what the driver told.
            devices: those that are there.

        Returns:
            Whether it is going to be told. It isn't if there are too many of its kind, or too many
            wait already.
        """
        device = _device_uuid(seen, devices)
        if not self._rates.admits(device, seen.code, seen.at.mono_ns):
            return False
        if len(self._pending) >= _WAITING:
            return False
        self._pending.append(XidReport(device, "", seen.code, seen.at))
        return True

    @property
    def pending(self) -> tuple[XidReport, ...]:
        """Those that are to be told, in the order in which they happened."""
        return tuple(self._pending)

    def mark_reported(self, count: int) -> None:
        """Let go of the first ones: they were told."""
        for _ in range(count):
            self._pending.popleft()


def _device_uuid(seen: XidEvent, devices: Iterable[Device]) -> str:
    """Return the uuid of the one instance that an error can mean, else that of its GPU."""
    if seen.gpu_instance is None:
        return seen.uuid
    found = [
        device.uuid
        for device in devices
        if device.mig is not None
        and device.mig.parent_uuid == seen.uuid
        and device.mig.gpu_instance_id == seen.gpu_instance
        and seen.compute_instance in (None, device.mig.compute_instance_id)
    ]
    return found[0] if len(found) == 1 else seen.uuid
