"""Scenarios of the fake NVML, and the text file that the C library reads."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from tests.fakes.nvml import profiles
from tests.fakes.nvml.activity import ALL_ONES_64, Gpm, Load, Proc, Sample
from tests.fakes.nvml.profiles import MIB

ALL_ONES_32: Final = 2**32 - 1

# Only the functions that find and identify a device work. All others are NOT_SUPPORTED.
NOTHING_SUPPORTED: Final[Mapping[str, int]] = {
    "*": 3,
    "nvmlDeviceGetHandleByIndex_v2": 0,
    "nvmlDeviceGetHandleByUUID": 0,
    "nvmlDeviceGetHandleByPciBusId_v2": 0,
    "nvmlDeviceGetUUID": 0,
    "nvmlDeviceGetIndex": 0,
}

FieldType = Literal["double", "uint", "ulong", "ull", "sll", "int", "ushort"]


@dataclass(frozen=True, slots=True)
class Ramp:
    """A number that grows by `rate` every second from the scenario's start."""

    start: int
    rate: float

    def __str__(self) -> str:
        return f"ramp {self.start} {self.rate!r}"


Number = int | Ramp


@dataclass(frozen=True, slots=True)
class Field:
    """The value or error of one field id of nvmlDeviceGetFieldValues."""

    value: Number | float = 0
    type: FieldType = "uint"
    error: int = 0

    def __str__(self) -> str:
        return f"error {self.error}" if self.error else f"{self.type} {self.value}"


@dataclass(frozen=True, slots=True)
class Sampled:
    """A value that the driver samples itself into a ring."""

    value: float = 0
    """In NVML's unit."""
    pulse: tuple[float, float, float] | None = None
    """Another value, the period at which it recurs, and its length, both in seconds."""
    period: float = 0.2
    """Seconds between two samples; 0 for a ring that stays empty."""
    room: int = 72
    type: FieldType = "uint"

    def __str__(self) -> str:
        text = f"{self.room} {self.period * 1e6!r} {self.type} {self.value!r}"
        return text if self.pulse is None else f"{text} pulse {' '.join(map(repr, self.pulse))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """A MIG device: one compute instance of one GPU instance."""

    gi: int
    ci: int = 0
    profile: str = "1g.10gb"
    uuid: str
    index: int | None = None
    """The index for nvmlDeviceGetMigDeviceHandleByIndex. By default its place in the list."""
    placement_start: int = 0
    values: Mapping[str, Number | None] = field(default_factory=dict)
    fields: Mapping[int | tuple[int, int], Field] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    block: Mapping[str, float] = field(default_factory=dict)
    processes: Sequence[Proc] = ()
    gpm: Mapping[int, Gpm | None] = field(default_factory=dict)
    """By metric id. Of several compute instances of a GPU instance, the first one's are used."""

    def lines(self, index: int, gpu_name: str | None) -> Iterator[str]:
        profile, ci_slices = profiles.split_profile(self.profile)
        ci_profile = max(ci_slices - 1, 0)
        number = index if self.index is None else self.index
        yield f"mig {number} {self.gi} {self.ci} {profile.id} {ci_profile}"
        yield f"text uuid {self.uuid}"
        if gpu_name is not None:
            yield f"text name {gpu_name} MIG {self.profile}"
        total = profile.memory_mib * MIB
        values: dict[str, Number | None] = {
            "memory_total": total,
            "memory_used": sum(p.memory for p in self.processes if p.memory != ALL_ONES_64),
            "bar1_total": total,
            "bar1_used": 0,
            "attr_sm": profile.multiprocessors * ci_slices // profile.slices,
            "attr_copy": profile.slices,
            "attr_dec": profile.slices,
            "attr_enc": 0,
            "attr_jpg": profile.slices,
            "attr_ofa": 0,
            "attr_gi_slices": profile.slices,
            "attr_ci_slices": ci_slices,
            "attr_memory_mb": profile.memory_mib,
            "placement_start": self.placement_start,
            "placement_size": profile.slices,
        }
        yield from _numbers({**values, **self.values})
        yield from _behaviour(self.fields, self.errors, self.block, self.processes)
        yield from _gpm({**dict.fromkeys(profiles.GPM_OF_INSTANCE, Gpm()), **self.gpm})


_KEYS: Final = frozenset(profiles.VALUES) | {
    "minor",
    "mig_mode_current",
    "mig_mode_pending",
    "max_mig_count",
    "memory_free",
    "fan_speed",
    "retired_pending",
    "retired_single",
    "retired_double",
    "licence_state",
    "nvlinks",
    "sampling_shift",
    "sampling_began",
    "fabric_state",
    "fabric_status",
    "fabric_clique",
    "fabric_health_mask",
    "fabric_health_summary",
    "autoboost",
    "inforom_checksum",
    "inforom_valid",
    "platform_chassis",
    "platform_slot",
    "platform_tray",
    "platform_host",
    "platform_peer",
    "platform_module",
}
_KEY_WITH_ARGUMENTS: Final = re.compile(
    r"(clock|max_clock|application_clock|temp_threshold|pcie_throughput|ecc|p2p|fan_speed|violation|"
    r"topology|nvlink_(state|version|error|remote_type))(_\d+)+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. A value or text that is None is NOT_SUPPORTED."""

    uuid: str
    minor: int | None = 0
    bus_id: str = "00000000:00:06.0"
    index: int | None = None
    """By default its place in the scenario."""
    name: str | None = profiles.NAME
    serial: str | None = "1650000000000"
    part_number: str | None = "695-00000-0000-000"
    vbios: str | None = "96.00.DA.00.0C"
    inforom: str | None = "G520.0200.00.05"
    inforom_oem: str | None = "2.1"
    inforom_ecc: str | None = "7.16"
    inforom_power: str | None = None
    gsp_firmware: str | None = profiles.DRIVER
    mig: Sequence[Mig] | None = None
    """None: MIG is off. An empty list: MIG is on and no instance exists."""
    values: Mapping[str, Number | None] = field(default_factory=dict)
    fields: Mapping[int | tuple[int, int], Field] = field(default_factory=dict)
    """By field id, or by (field id, scope)."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Return code by function. "*" means all functions without an entry, and 0 means success."""
    block: Mapping[str, float] = field(default_factory=dict)
    processes: Sequence[Proc] = ()
    samples: Sequence[Sample] = ()
    """More entries of nvmlDeviceGetProcessUtilization, for example stale or impossible ones."""
    loads: Sequence[Load] = ()
    gpm: Mapping[int, Gpm | None] = field(default_factory=dict)
    """By metric id; None is NOT_SUPPORTED."""
    sampled: Mapping[int, Sampled | None] = field(default_factory=dict)
    """By sampling type; None is NOT_SUPPORTED."""
    lost: bool = False
    remotes: Mapping[int, str] = field(default_factory=dict)
    """PCI bus ids of the devices at the other ends of its NVLinks, by link."""
    fabric_cluster: str | None = None
    """The uuid of the cluster, valid with the value `fabric_state` 3 of a registered card."""

    def all_values(self) -> dict[str, Number]:
        on = self.mig is not None
        values: dict[str, Number | None] = {
            **profiles.VALUES,
            **(dict.fromkeys(profiles.UNSUPPORTED_WITH_MIG) if on else {}),
            "minor": self.minor,
            "mig_mode_current": int(on),
            "mig_mode_pending": int(on),
            "max_mig_count": 7 if on else 0,
            **self.values,
        }
        for key in self.values:
            # A misspelt key would mean NOT_SUPPORTED, and a test would pass for a wrong reason.
            if key not in _KEYS and not _KEY_WITH_ARGUMENTS.fullmatch(key):
                raise ValueError(f"no such value: {key}")
        return {key: value for key, value in values.items() if value is not None}

    def lines(self, place: int) -> Iterator[str]:
        yield f"gpu {place if self.index is None else self.index}"
        for key in _TEXTS:
            text = getattr(self, key)
            if text is not None:
                yield f"text {key} {text}"
        for link, bus_id in self.remotes.items():
            yield f"text nvlink_remote_{link} {bus_id}"
        values = self.all_values()
        yield from _numbers(values)
        fields: dict[int | tuple[int, int], Field] = {}
        for number, key, kind in _FIELDS_FROM_VALUES:
            if key in values:
                fields[number] = Field(values[key], kind)
        yield from _behaviour(
            {**fields, **self.fields}, self.errors, self.block, self.processes, self.samples
        )
        yield from _gpm({**dict.fromkeys(profiles.GPM, Gpm()), **self.gpm})
        for load in self.loads:
            yield f"load {load}"
        lacking = dict.fromkeys(profiles.UNSAMPLED_WITH_MIG) if self.mig is not None else {}
        for ring, sampled in {**_SAMPLED, **lacking, **self.sampled}.items():
            if sampled is not None:
                yield f"sampled {ring} {sampled}"
        if self.lost:
            yield "lost"
        for at, mig in enumerate(self.mig or ()):
            yield from mig.lines(at, self.name)


_TEXTS: Final = (
    "uuid",
    "bus_id",
    "name",
    "serial",
    "part_number",
    "vbios",
    "inforom",
    "inforom_oem",
    "inforom_ecc",
    "inforom_power",
    "gsp_firmware",
    "fabric_cluster",
)

# The rings of an H100's driver by type: power; GPU, memory, encoder, decoder utilisation; clocks.
_SAMPLED: Final[Mapping[int, Sampled | None]] = {
    0: Sampled(profiles.VALUES["power_usage"], period=0.02, room=120),
    **dict.fromkeys((1, 2, 3, 4), Sampled()),
    **dict.fromkeys((5, 6), Sampled(period=0, room=100)),
}

# The fields that have the same value as a function. Each can be overridden in Gpu.fields.
_FIELDS_FROM_VALUES: Final[tuple[tuple[int, str, FieldType], ...]] = (
    (82, "memory_temperature", "uint"),
    (83, "energy", "ull"),
    (94, "pcie_replay", "uint"),
    (186, "power_usage", "uint"),
    *((74 + policy, f"violation_{policy}", "ull") for policy in range(6)),
    (187, "power_limit_min", "uint"),
    (188, "power_limit_max", "uint"),
    (189, "power_default_limit", "uint"),
    (190, "enforced_power_limit", "uint"),
    (192, "power_limit", "uint"),
    (230, "recovery_action", "uint"),
    (29, "retired_single", "ull"),
    (30, "retired_double", "ull"),
    (31, "retired_pending", "ull"),
    (91, "nvlinks", "uint"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All values and the behaviour of the fake NVML, until the file is rewritten."""

    gpus: Sequence[Gpu] = ()
    driver: str | None = profiles.DRIVER
    nvml: str | None = profiles.NVML
    cuda: int | None = profiles.CUDA
    process_name: str | None = None
    """The name of the calling process."""
    init_error: int = 0
    stale_mig_error: int = 6
    """The error for a handle of a destroyed MIG device: NOT_FOUND, or 2 for INVALID_ARGUMENT."""
    hides_processes: bool = False
    """Whether the caller is in its own pid namespace, which hides all processes."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Return code by function on all devices. "*" does not apply to init and shutdown."""
    block: Mapping[str, float] = field(default_factory=dict)
    t0: float | None = None
    """CLOCK_MONOTONIC seconds at which ramps start. By default when the library is loaded."""

    def with_gpu(self, place: int, **changes: object) -> "Scenario":
        """Return a copy with one GPU changed."""
        gpus = list(self.gpus)
        gpus[place] = replace(gpus[place], **changes)  # type: ignore[arg-type]
        return replace(self, gpus=gpus)

    def without_gpu(self, place: int) -> "Scenario":
        """Return a copy without one GPU."""
        return replace(self, gpus=[g for at, g in enumerate(self.gpus) if at != place])

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines())

    def lines(self) -> Iterator[str]:
        if self.t0 is not None:
            yield f"t0 {self.t0!r}"
        texts = {"driver": self.driver, "nvml": self.nvml, "process_name": self.process_name}
        for key, text in texts.items():
            if text is not None:
                yield f"text {key} {text}"
        yield from _numbers(
            {
                "cuda": self.cuda,
                "init_error": self.init_error,
                "stale_mig_error": self.stale_mig_error,
                "hides_processes": int(self.hides_processes) or None,
            }
        )
        yield from _behaviour({}, self.errors, self.block)
        for p in profiles.PROFILES:
            yield (
                f"profile {p.number} {p.id} {p.slices} {p.instances} {p.multiprocessors} "
                f"{p.memory_mib} MIG {p.name}"
            )
        for place, gpu in enumerate(self.gpus):
            yield from gpu.lines(place)

    def write(self, path: Path) -> None:
        """Replace the file atomically, so that a reader never sees a part of it."""
        partial = path.with_name(f"{path.name}.{os.getpid()}.new")
        partial.write_text(self.text())
        partial.replace(path)


def _numbers(values: Mapping[str, Number | None]) -> Iterator[str]:
    return (f"value {key} {value}" for key, value in values.items() if value is not None)


def _gpm(metrics: Mapping[int, Gpm | None]) -> Iterator[str]:
    return (f"gpm {number} {metric}" for number, metric in metrics.items() if metric is not None)


def _behaviour(
    fields: Mapping[int | tuple[int, int], Field],
    errors: Mapping[str, int],
    block: Mapping[str, float],
    processes: Sequence[Proc] = (),
    samples: Sequence[Sample] = (),
) -> Iterator[str]:
    for key, answer in fields.items():
        number, scope = key if isinstance(key, tuple) else (key, 0)
        yield f"field {number}.{scope} {answer}" if scope else f"field {number} {answer}"
    for function, code in errors.items():
        yield f"error {function} {code}"
    for function, seconds in block.items():
        yield f"block {function} {seconds!r}"
    for proc in processes:
        yield f"process {proc.kind} {proc.pid} {proc.memory}"
    for s in samples:
        yield f"sample {s.pid} {s.sm} {s.memory} {s.encoder} {s.decoder} {s.timestamp}"
