"""Activity on a device: processes, their utilization, and GPM metrics."""

from dataclasses import dataclass
from typing import Final, Literal

ALL_ONES_64: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Proc:
    """A process on a device. Memory ALL_ONES_64 means not available, as in NVML."""

    pid: int
    memory: int = 1 << 30
    kind: Literal["compute", "graphics", "mps"] = "compute"


@dataclass(frozen=True, slots=True)
class Sample:
    """One entry that nvmlDeviceGetProcessUtilization returns."""

    pid: int
    sm: int = 0
    memory: int = 0
    encoder: int = 0
    decoder: int = 0
    timestamp: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a process on a GPU over time, for nvmlDeviceGetProcessUtilization.

    The fake works like the driver: it samples every 200 ms, keeps 70 samples, and returns one
    entry for each process that was found busy, with the mean until it was last found busy.
    """

    pid: int
    percent: float = 100
    start: float = 0
    """When the load starts, in seconds from the scenario's start."""
    end: float = 1e9
    pulse: tuple[float, float] | None = None
    """Period and length of the busy intervals within that time, both in seconds."""

    def __str__(self) -> str:
        text = f"{self.pid} {self.percent!r} {self.start!r} {self.end!r}"
        return text if self.pulse is None else f"{text} {' '.join(map(repr, self.pulse))}"


@dataclass(frozen=True, slots=True)
class Gpm:
    """One metric of GPU performance monitoring, in NVML's unit: percent or MiB/s."""

    value: float = 0.0
    rate: float = 0.0
    """The growth per second from the scenario's start."""
    error: int = 0

    def __str__(self) -> str:
        if self.error:
            return f"error {self.error}"
        return f"ramp {self.value!r} {self.rate!r}" if self.rate else repr(self.value)
