"""Fields of GPU performance monitoring (GPM), which DCGM calls profiling."""

from typing import Final

from pipeline.fields.field import Field, Group, Tier
from pipeline.fields.link_fields import NVLINKS


def _ratio(
    name: str,
    gpm: int,
    dcgm: str,
    renamed: str,
    about: str,
    *,
    old: bool = False,
    group: Group = "profiling",
) -> Field:
    return Field(
        name,
        "ratio",
        f"{about}, from 0 to 1, over the time between two samples.",
        f"nvmlGpmMetricsGet({gpm})",
        tier=Tier.FAST,
        group=group,
        dcgm=f"DCGM_FI_PROF_{dcgm}",
        aliases=(f"DCGM_FI_PROF_{renamed}_RATIO",),
        dcgm_1x=f"dcgm_fi_prof_{dcgm.lower()}" if old else "",
        mig=True,
        since="hopper",
    )


def _active(
    name: str,
    gpm: int,
    dcgm: str,
    renamed: str,
    about: str,
    *,
    old: bool = False,
    group: Group = "profiling",
) -> Field:
    return _ratio(
        f"{name}_active_ratio",
        gpm,
        f"{dcgm}_ACTIVE",
        f"{renamed}_UTIL",
        f"Fraction of time in which {about}",
        old=old,
        group=group,
    )


def _tensor(name: str, gpm: int, numbers: str) -> Field:
    unit = name.upper()
    about = f"the tensor cores multiplied {numbers}"
    return _active(f"tensor_{name}", gpm, f"PIPE_TENSOR_{unit}", unit, about)


def _rate(bus: str, direction: str, gpm: int, about: str, *, group: Group = "profiling") -> Field:
    verb, short = ("sent", "TX") if direction == "transmit" else ("received", "RX")
    return Field(
        f"{bus}_{direction}_bytes_per_second",
        "bytes/s",
        f"Bytes {verb} {about}, in bytes per second over the time between two samples.",
        f"nvmlGpmMetricsGet({gpm})",
        tier=Tier.FAST,
        group=group,
        dcgm=f"DCGM_FI_PROF_{bus.upper()}_{short}_BYTES",
        since="hopper",
    )


def _link_rate(link: int, short: str, gpm: int) -> Field:
    verb, direction = ("sent", "transmit") if short == "TX" else ("received", "receive")
    return Field(
        f"nvlink_{link}_{direction}_bytes_per_second",
        "bytes/s",
        f"Bytes {verb} over NVLink {link}, headers included, in bytes per second over the time "
        "between two samples.",
        f"nvmlGpmMetricsGet({gpm})",
        tier=Tier.FAST,
        group="details",
        dcgm=f"DCGM_FI_PROF_NVLINK_L{link}_{short}_BYTES",
        since="hopper",
    )


def _chip_to_chip(short: str, part: str, gpm: int) -> Field:
    verb, direction = ("sent", "transmit") if short == "TX" else ("received", "receive")
    about = "headers included" if part == "all" else "headers not included"
    return Field(
        f"c2c_{direction}_{part}_bytes_per_second",
        "bytes/s",
        f"Bytes {verb} over chip-to-chip links, {about}, in bytes per second over the time between "
        "two samples.",
        f"nvmlGpmMetricsGet({gpm})",
        tier=Tier.FAST,
        group="details",
        dcgm=f"DCGM_FI_PROF_C2C_{short}_{part.upper()}_BYTES",
        since="hopper",
    )


def _cache(memory: str, outcome: str, gpm: int) -> Field:
    about = {"hostmem": "the processor's memory", "peermem": "the memory of other GPUs"}[memory]
    verb = "found it in" if outcome == "hit" else "did not find it in"
    return Field(
        f"{memory}_cache_{outcome}_ratio",
        "ratio",
        f"Fraction of accesses to {about} that {verb} the cache, from 0 to 1, over the time "
        "between two samples.",
        f"nvmlGpmMetricsGet({gpm})",
        tier=Tier.FAST,
        group="details",
        dcgm=f"DCGM_FI_PROF_{memory.upper()}_CACHE_{outcome.upper()}",
        since="blackwell",
    )


_ENGINES: Final = (("nvdec", 30, 8), ("nvjpg", 40, 8), ("nvofa", 50, 2))
"""Name, GPM id of the first engine, and number of engines."""

PROFILING: tuple[Field, ...] = (
    _active(
        "graphics_engine",
        1,
        "GR_ENGINE",
        "GR_ENGINE",
        "a graphics or compute context was busy",
        old=True,
        group="standard",
    ),
    _active("sm", 2, "SM", "SM", "a multiprocessor had a warp, as a mean over all", old=True),
    _ratio(
        "sm_occupancy_ratio",
        3,
        "SM_OCCUPANCY",
        "SM_OCCUPANCY",
        "Resident warps as a fraction of the maximum of the multiprocessors",
        old=True,
    ),
    _active(
        "tensor",
        5,
        "PIPE_TENSOR",
        "TENSOR",
        "the tensor cores were busy",
        old=True,
        group="standard",
    ),
    _active(
        "dram",
        10,
        "DRAM",
        "DRAM",
        "device memory was sending or receiving",
        old=True,
        group="standard",
    ),
    _active("fp64", 11, "PIPE_FP64", "FP64", "the FP64 pipes were busy"),
    _active("fp32", 12, "PIPE_FP32", "FP32", "the FP32 pipes were busy"),
    _active("fp16", 13, "PIPE_FP16", "FP16", "the FP16 pipes were busy"),
    _active("integer", 4, "PIPE_INT", "INT", "the integer pipes were busy"),
    _tensor("hmma", 7, "half-precision numbers"),
    _tensor("imma", 9, "integers"),
    _tensor("dfma", 6, "double-precision numbers"),
    _rate("pcie", "transmit", 20, "over PCIe, headers included", group="standard"),
    _rate("pcie", "receive", 21, "over PCIe, headers included", group="standard"),
    _rate("nvlink", "transmit", 61, "over all NVLinks"),
    _rate("nvlink", "receive", 60, "over all NVLinks"),
    *(
        _ratio(
            f"{engine}{number}_active_ratio",
            first + number,
            f"{engine.upper()}{number}_ACTIVE",
            f"{engine.upper()}_UTIL_{number}",
            f"Fraction of time in which {engine.upper()} engine {number} was busy",
        )
        for engine, first, count in _ENGINES
        for number in range(count)
    ),
    *(
        _link_rate(link, short, 62 + 2 * link + place)
        for link in range(NVLINKS)
        for place, short in enumerate(("RX", "TX"))
    ),
    _chip_to_chip("TX", "all", 100),
    _chip_to_chip("RX", "all", 101),
    _chip_to_chip("TX", "data", 102),
    _chip_to_chip("RX", "data", 103),
    _cache("hostmem", "hit", 160),
    _cache("hostmem", "miss", 161),
    _cache("peermem", "hit", 162),
    _cache("peermem", "miss", 163),
)
