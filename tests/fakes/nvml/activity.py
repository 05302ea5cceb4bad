"""What happens on a device: processes, and what they do to it."""

from dataclasses import dataclass
from typing import Final, Literal

ALL_ONES_64: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Proc:
    """A process on a device; memory ALL_ONES_64 is what NVML calls not available."""

    pid: int
    memory: int = 1 << 30
    kind: Literal["compute", "graphics", "mps"] = "compute"


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of nvmlDeviceGetProcessUtilization."""

    pid: int
    sm: int = 0
    memory: int = 0
    encoder: int = 0
    decoder: int = 0
    timestamp: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """What a process does to a GPU over time; nvmlDeviceGetProcessUtilization tells of it.

    The driver is played as it is: it samples each 200 ms, keeps 70 samples, and answers with one
    entry for each process that was found at work, the mean up to when it was found last.
    """

    pid: int
    percent: float = 100
    start: float = 0
    """When it begins, in seconds from the scenario's start."""
    end: float = 1e9
    pulse: tuple[float, float] | None = None
    """How often it works within that, and for how long, both in seconds."""

    def __str__(self) -> str:
        text = f"{self.pid} {self.percent!r} {self.start!r} {self.end!r}"
        return text if self.pulse is None else f"{text} {' '.join(map(repr, self.pulse))}"


@dataclass(frozen=True, slots=True)
class Gpm:
    """One metric of GPU performance monitoring, in NVML's unit: percent or MiB/s."""

    value: float = 0.0
    rate: float = 0.0
    """By how much it grows every second from the scenario's start."""
    error: int = 0

    def __str__(self) -> str:
        if self.error:
            return f"error {self.error}"
        return f"ramp {self.value!r} {self.rate!r}" if self.rate else repr(self.value)
