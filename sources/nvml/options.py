"""The options of the nvml source."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import Duration
from pipeline.fields.xid_catalogue import WATCHED
from sources.nvml.device_filter import DeviceFilter


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a source of kind `nvml`."""

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
            "How long the calls for one GPU may take in a round. A GPU that takes longer is "
            "reported as down and left out until its call returns; the other GPUs are still read."
        ),
    ] = Duration.parse("2s")
    devices: Annotated[
        str,
        Doc(
            "Which devices are read: all; f (each field once: on a GPU with MIG instances, fields "
            "that instances have are read only for the instances); g (GPUs) and i (MIG "
            "instances), each with an optional list such as g:0,2-3, joined by +. Holders of all "
            "devices are reported in any case."
        ),
    ] = "all"
    processes: Annotated[
        bool, Doc("Whether to list the processes on each device and the memory they use.")
    ] = True
    process_readings: Annotated[
        bool,
        Doc(
            "Whether these lists are readings: the number of processes on each device, and the "
            "memory of each process. Usage samples need processes only."
        ),
    ] = True
    usage: Annotated[
        bool,
        Doc(
            "Whether to take usage samples: how much of each device every process uses, and which "
            "container it belongs to. The podgpu_container metrics are calculated from them. "
            "Requires processes: true."
        ),
    ] = True
    usage_interval: Annotated[
        Duration,
        AtLeast("1s"),
        AtMost("10s"),
        Doc("How often a usage sample is taken. The driver keeps the data of processes for 14 s."),
    ] = Duration.parse("5s")
    proc: Annotated[
        Path,
        Doc(
            "The /proc that shows to which container a process belongs. It must be that of "
            "podgpu's own pid namespace, which must be the host's (hostPID: true)."
        ),
    ] = Path("/proc")
    statistics_window: Annotated[
        Duration,
        AtLeast("1s"),
        Doc(
            "The window of the minimum, mean and maximum of the driver's own samples, in whole "
            "intervals. Set it to the scrape interval, so that no peak is missed between scrapes."
        ),
    ] = Duration.parse("15s")
    xid_codes: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=65535)], ...],
        Doc("XID codes whose counters start at 0, so that their first error is an increase."),
    ] = WATCHED
    xid_window: Annotated[
        Duration,
        AtLeast("1s"),
        AtMost("1d"),
        Doc("The window in which xid_errors_in_window counts XID errors."),
    ] = Duration.parse("5m")
    clock_events_window: Annotated[
        Duration,
        AtLeast("1s"),
        AtMost("1d"),
        Doc("The window in which clock_events_in_window counts samples."),
    ] = Duration.parse("5m")

    def __post_init__(self) -> None:
        """Refuse a slow interval below the fast one, and an invalid `devices`."""
        DeviceFilter.parse(self.devices)
        if self.slow_interval < self.interval:
            raise ValueError(
                f"slow_interval {self.slow_interval} is less than interval {self.interval}; "
                f"write slow_interval: {self.interval} or more"
            )
