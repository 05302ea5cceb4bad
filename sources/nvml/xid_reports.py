"""XID errors that are reported to the join, which finds the affected containers."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from pipeline.component.xid_rate_limit import XidRateLimit
from pipeline.model import Device, XidReport
from sources.nvml.xid_watch import XidEvent

_MAX_PENDING: Final = 1024
"""Maximum number of pending reports."""


class XidReports:
    """A bounded queue of XID errors to report; the caller counts errors that are not accepted.

    It outlives the source, so that a later run reports the pending errors of an earlier one.
    """

    def __init__(self) -> None:
        self._rates = XidRateLimit()
        self._pending: deque[XidReport] = deque()

    def add(self, event: XidEvent, devices: Iterable[Device]) -> bool:
        """Add an error to the pending reports.

        Args:
            event: the event of the driver.
            devices: the present devices.

        Returns:
            Whether it will be reported. It will not if there are too many errors with its code, or
            if too many reports are pending.
        """
        device = _device_uuid(event, devices)
        if not self._rates.admits(device, event.code, event.at.mono_ns):
            return False
        if len(self._pending) >= _MAX_PENDING:
            return False
        self._pending.append(XidReport(device, "", event.code, event.at))
        return True

    @property
    def pending(self) -> tuple[XidReport, ...]:
        """The pending reports, in the order in which the errors occurred."""
        return tuple(self._pending)

    def mark_reported(self, count: int) -> None:
        """Remove the first reports of the queue: they were emitted."""
        for _ in range(count):
            self._pending.popleft()


def _device_uuid(event: XidEvent, devices: Iterable[Device]) -> str:
    """Return the uuid of the only MIG instance that the event can mean, otherwise of the GPU."""
    if event.gpu_instance is None:
        return event.uuid
    found = [
        device.uuid
        for device in devices
        if device.mig is not None
        and device.mig.parent_uuid == event.uuid
        and device.mig.gpu_instance_id == event.gpu_instance
        and event.compute_instance in (None, device.mig.compute_instance_id)
    ]
    return found[0] if len(found) == 1 else event.uuid
