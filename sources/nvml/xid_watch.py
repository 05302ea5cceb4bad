"""Waits for XID errors on a thread."""

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import Device, Instant, XidReport
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library
from sources.nvml.open_gpu import OpenGpu

NO_INSTANCE: Final = 0xFFFFFFFF
"""The value of an event that names no MIG instance."""

SLICE: Final = 0.5
"""Maximum seconds of one wait, and so the time until the thread notices that it must stop."""


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID error occurred.

    Attributes:
        uuid: uuid of the GPU.
        code: code of the error.
        at: when the event was received.
        gpu_instance: id of the GPU instance where it occurred; None if the driver names none.
        compute_instance: id of the compute instance within it; None if the driver names none.
    """

    uuid: str
    code: int
    at: Instant
    gpu_instance: int | None = None
    compute_instance: int | None = None

    def report(self, devices: Iterable[Device]) -> XidReport:
        """Return a report for the MIG instance if only one can be meant, otherwise for the GPU."""
        found = [
            device.uuid
            for device in devices
            if self.gpu_instance is not None
            and device.mig is not None
            and device.mig.parent_uuid == self.uuid
            and device.mig.gpu_instance_id == self.gpu_instance
            and self.compute_instance in (None, device.mig.compute_instance_id)
        ]
        return XidReport(found[0] if len(found) == 1 else self.uuid, "", self.code, self.at)


class XidWatch(threading.Thread):
    """Registers GPUs for XID events and waits for events until it is stopped.

    Args:
        nvml: the library, initialised.
        clock: the clock.
        on_xid: called for each XID error, on the event loop on which this object was made.
        on_registered: called on that event loop with the uuid of a GPU and NVML's code: whether
            XID errors of the GPU are reported from now on. The uuid is empty if the code concerns
            all GPUs.
    """

    def __init__(
        self,
        nvml: Library,
        clock: Clock,
        on_xid: Callable[[XidEvent], None],
        on_registered: Callable[[str, int], None],
    ) -> None:
        super().__init__(name="podgpu-nvml-xid", daemon=True)
        self.ended = asyncio.Event()
        self._nvml = nvml
        self._clock = clock
        self._on_xid = on_xid
        self._on_registered = on_registered
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._wake_event = threading.Event()
        self._stopping = False
        self._renewing = False
        self._targets: dict[int, tuple[str, Handle]] = {}
        self._attempted: set[int] = set()
        self._registered: dict[int, str] = {}

    def set_targets(self, gpus: Iterable[OpenGpu], *, renew: bool = False) -> None:
        """Watch these GPUs. `renew` registers all of them again, as is required after a loss."""
        targets = {library.address(gpu.handle): (gpu.uuid, gpu.handle) for gpu in gpus}
        with self._lock:
            self._targets = targets
            self._renewing |= renew
        self._wake_event.set()

    def stop(self) -> None:
        """Request the thread to end; the thread then sets `ended`."""
        self._stopping = True
        self._wake_event.set()

    def run(self) -> None:
        """Watch with one event set after another, until stopped or no new set would help."""
        try:
            while not self._stopping:
                if not self._watch_with_one_set():
                    break
        finally:
            self._call_on_loop(self.ended.set)

    def _call_on_loop(self, call: Callable[..., None], *args: object) -> None:
        # RuntimeError: the loop has ended, so no report is needed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *args)

    def _watch_with_one_set(self) -> bool:
        """Watch until stopped or renewed; return False if a new set would not help."""
        nvml = self._nvml
        events = library.EventSet()
        code = nvml.call("nvmlEventSetCreate", ctypes.byref(events))
        if code:
            self._call_on_loop(self._on_registered, "", code)
            return False
        data = library.EventData()
        wait = nvml.bind(
            ("nvmlEventSetWait_v2", "nvmlEventSetWait"),
            events,
            ctypes.byref(data),
            ctypes.c_uint(round(SLICE * 1000)),
        )
        self._attempted.clear()
        self._registered.clear()
        self._wake_event.set()  # a new set has no registered GPUs
        try:
            while not self._stopping:
                if self._register(events):
                    break
                if not self._registered:
                    self._wake_event.wait()
                    continue
                # A driver without MIG support does not set these.
                data.gpuInstanceId = data.computeInstanceId = NO_INSTANCE
                code = wait()
                if code == 0:
                    self._take(data)
                elif code in codes.DRIVER_GONE or code == codes.FUNCTION_NOT_FOUND:
                    return False  # the sampling thread notices it too, and ends the run
                elif code != codes.TIMEOUT:
                    # A lost GPU may break the whole set: a new set omits it.
                    self._wake_event.wait(SLICE)
                    with self._lock:
                        self._renewing = True
        finally:
            if code not in codes.DRIVER_GONE:
                nvml.call("nvmlEventSetFree", events)
        return True

    def _register(self, events: object) -> bool:
        """Register new GPUs; return True if a new set is required."""
        if not self._wake_event.is_set() and not self._renewing:
            return False
        with self._lock:
            self._wake_event.clear()
            if self._renewing and self._attempted:
                self._renewing = False
                return True
            self._renewing = False
            targets = dict(self._targets)
        nvml, types = self._nvml, ctypes.c_ulonglong(library.XID_EVENT)
        for handle_address, (uuid, handle) in targets.items():
            if handle_address in self._attempted:
                continue
            self._attempted.add(handle_address)
            code = nvml.call("nvmlDeviceRegisterEvents", handle, types, events)
            if code == codes.OK:
                self._registered[handle_address] = uuid
            self._call_on_loop(self._on_registered, uuid, code)
        return False

    def _take(self, data: library.Struct) -> None:
        """Report an event. An event of a MIG instance has the GPU's handle and instance ids."""
        if not data.eventType & library.XID_EVENT:
            return
        uuid = self._registered.get(library.address(data.device), "")
        if not uuid:
            code, uuid = self._nvml.text("nvmlDeviceGetUUID", data.device)
            if code:
                return
        ids = (
            None if number == NO_INSTANCE else int(number)
            for number in (data.gpuInstanceId, data.computeInstanceId)
        )
        event = XidEvent(uuid, int(data.eventData), self._clock.now(), *ids)
        self._call_on_loop(self._on_xid, event)
