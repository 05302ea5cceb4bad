"""What can be set for the nvml source."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import Duration
from sources.nvml.device_filter import DeviceFilter

KNOWN_XIDS = (13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 154)
"""Codes that NVIDIA's catalogue tells an operator to act upon, or that applications cause most."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and what besides the fields."""

    interval: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How often the cheap readings are taken: utilisation, clocks, power, memory."),
    ] = Duration.parse("5s")
    slow_interval: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc(
            "How often the costly readings are taken: energy, PCIe, memory errors. "
            "Not less than interval."
        ),
    ] = Duration.parse("30s")
    deadline: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc(
            "How long the driver may take over one GPU in a round. A GPU that takes longer is "
            "reported as down and left out until it answers; the others go on."
        ),
    ] = Duration.parse("2s")
    devices: Annotated[
        str,
        Doc(
            "Which devices are read: all; f (GPUs without MIG instances, and the instances of "
            "the others); g and i (GPUs, MIG instances), with a list such as g:0,2-3, and joined "
            "by +. Holders of all devices are known in any case."
        ),
    ] = "all"
    processes: Annotated[
        bool, Doc("Whether to list the processes on each device and the memory they use.")
    ] = True
    usage: Annotated[
        bool,
        Doc(
            "Whether to look at how much of each device every process uses, and whose it is: what "
            "the podgpu_container families are made of."
        ),
    ] = True
    usage_interval: Annotated[
        Duration,
        AtLeast("1s"),
        AtMost("10s"),
        Doc("How often that is looked at. The driver keeps what it tells of processes for 14 s."),
    ] = Duration.parse("5s")
    proc: Annotated[
        Path,
        Doc(
            "Where the /proc is mounted that tells whose a process is. It has to be that of "
            "podgpu's own pid namespace, in which the driver counts: the host's (hostPID)."
        ),
    ] = Path("/proc")
    statistics_window: Annotated[
        Duration,
        AtLeast("1s"),
        Doc(
            "How far back the least, the mean and the most of the driver's own samples reach, "
            "in whole intervals. As long as the interval of scrapes, no peak falls between two."
        ),
    ] = Duration.parse("15s")
    xid_codes: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=65535)], ...],
        Doc("XID codes whose counters start at 0, so that the first error is seen to be one."),
    ] = KNOWN_XIDS
    xid_window: Annotated[
        Duration,
        AtLeast("1s"),
        AtMost("1d"),
        Doc("How far back the XID errors reach that xid_errors_in_window counts."),
    ] = Duration.parse("5m")
    clock_events_window: Annotated[
        Duration,
        AtLeast("1s"),
        AtMost("1d"),
        Doc("How far back the samples reach that clock_events_in_window counts."),
    ] = Duration.parse("5m")

    def __post_init__(self) -> None:
        """Refuse a slow interval below the fast one, and words for devices that mean nothing."""
        DeviceFilter.parse(self.devices)
        if self.slow_interval < self.interval:
            raise ValueError(
                f"slow_interval {self.slow_interval} is less than interval {self.interval}; "
                f"write slow_interval: {self.interval} or more"
            )
