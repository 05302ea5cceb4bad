"""Fields of the device memory: size, errors, rows and pages."""

from typing import Final

from pipeline.fields.field import Field, Tier

_MIB = 1 << 20

_LOCATIONS: Final = (
    ("l1", "L1", "level-1 cache"),
    ("l2", "L2", "level-2 cache"),
    ("device", "DEV", "device memory"),
    ("register", "REG", "register file"),
    ("texture", "TEX", "texture memory"),
    ("shared", "SHM", "shared memory"),
    ("cbu", "CBU", "convergence barrier unit"),
    ("sram", "SRM", "SRAM"),
)
"""podgpu's name, DCGM's name and meaning, in the order of nvmlMemoryLocation_t."""


def located_ecc(kind: int, span: int, place: int) -> str:
    """Return the name of the field that counts the ECC errors of a part of the GPU.

    Args:
        kind: nvmlMemoryErrorType_t: 0 for corrected errors, 1 for uncorrected ones.
        span: nvmlEccCounterType_t: 0 since the driver was loaded, 1 in the lifetime of the board.
        place: nvmlMemoryLocation_t, below `PLACES`.
    """
    kinds, spans = ("corrected", "uncorrected"), ("volatile", "aggregate")
    return f"ecc_{kinds[kind]}_{spans[span]}_{_LOCATIONS[place][0]}"


PLACES: Final = len(_LOCATIONS)
"""Number of parts of a GPU whose ECC errors are counted separately."""


def _memory(name: str, about: str, *, dcgm_1x: str = "", otel: str = "") -> Field:
    return Field(
        f"memory_{name}_bytes",
        "bytes",
        f"Device memory{about}.",
        "nvmlDeviceGetMemoryInfo_v2",
        tier=Tier.FAST,
        dcgm=f"DCGM_FI_DEV_FB_{name.upper()}",
        dcgm_base=f"DCGM_FI_DEV_FB_{name.upper().replace('TOTAL', 'CAPACITY')}_BYTES",
        dcgm_1x=dcgm_1x,
        dcgm_divisor=_MIB,
        dcgm_unit="MiB",
        otel=otel and f"hw.gpu.memory.{otel}",
        mig=True,
    )


def _ecc(kind: str, span: str, dcgm: str, about: str) -> Field:
    volatile = span == "volatile"
    return Field(
        f"ecc_{kind}_{span}",
        "errors",
        f"Memory errors that ECC {about}.",
        "nvmlDeviceGetTotalEccErrors",
        type="counter",
        dcgm=f"DCGM_FI_DEV_ECC_{dcgm}_TOTAL",
        dcgm_1x=f"dcgm_ecc_{dcgm[:3].lower()}_{span}_total",
        otel="hw.errors" if volatile else "",
        otel_attrs=(("error.type", kind),) if volatile else (),
    )


def _remapped(kind: str, about: str) -> Field:
    return Field(
        f"remapped_rows_{kind}",
        "rows",
        f"Memory rows remapped after errors that {about}.",
        "nvmlDeviceGetRemappedRows",
        type="counter",
        dcgm=f"DCGM_FI_DEV_{kind.upper()}_REMAPPED_ROWS",
        aliases=(f"DCGM_FI_DEV_ROW_REMAP_{kind.upper()}_TOTAL",),
        otel="hw.errors",
        otel_attrs=(("error.type", f"row_remap_{kind}"),),
    )


def _retired(bits: str, number: int, dcgm: str) -> Field:
    return Field(
        f"retired_pages_{bits}_bit",
        "pages",
        f"Memory pages retired after {bits}-bit errors; cards before Ampere.",
        f"nvmlDeviceGetFieldValues({number})",
        type="counter",
        group="health",
        dcgm=f"DCGM_FI_DEV_RETIRED_{dcgm}",
        aliases=(f"DCGM_FI_DEV_PAGE_RETIRED_{dcgm}_TOTAL",),
        dcgm_1x=f"dcgm_retired_pages_{dcgm.lower()}",
    )


def _bar1(name: str, about: str) -> Field:
    return Field(
        f"bar1_{name}_bytes",
        "bytes",
        f"Address space of the PCIe bus (BAR1) that maps device memory: {about}.",
        "nvmlDeviceGetBAR1MemoryInfo",
        tier=Tier.FAST,
        group="details",
        dcgm=f"DCGM_FI_DEV_BAR1_{name.upper()}",
        dcgm_base=f"DCGM_FI_DEV_BAR1_{name.upper().replace('TOTAL', 'CAPACITY')}_BYTES",
        dcgm_divisor=_MIB,
        dcgm_unit="MiB",
        mig=True,
    )


def _located_ecc(kind: int, span: int, place: int) -> Field:
    _, dcgm, about = _LOCATIONS[place]
    return Field(
        located_ecc(kind, span, place),
        "errors",
        f"Errors in the {about} that ECC {('corrected', 'could not correct')[kind]} "
        f"{('since the driver was loaded', 'in the lifetime of the board')[span]}.",
        "nvmlDeviceGetMemoryErrorCounter",
        type="counter",
        group="details",
        dcgm=f"DCGM_FI_DEV_ECC_{('SBE', 'DBE')[kind]}_{('VOL', 'AGG')[span]}_{dcgm}",
    )


def _bank_remap(name: str, about: str) -> Field:
    return Field(
        f"banks_remap_{name}",
        "banks",
        f"Memory banks with {about} left for remapping.",
        "nvmlDeviceGetRowRemapperHistogram",
        group="details",
        dcgm=f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_{name.upper()}",
        aliases=(f"DCGM_FI_DEV_BANK_REMAP_AVAIL_{name.upper()}",),
        since="ampere",
    )


MEMORY: tuple[Field, ...] = (
    _memory("total", ": used, free and reserved together", otel="limit"),
    _memory("free", " that can still be allocated", dcgm_1x="dcgm_fb_free"),
    _memory(
        "used",
        " that is allocated, without what the driver reserves",
        dcgm_1x="dcgm_fb_used",
        otel="usage",
    ),
    _memory("reserved", " that the driver and the firmware reserve"),
    _ecc("corrected", "volatile", "SBE_VOL", "corrected since the driver was loaded"),
    _ecc("uncorrected", "volatile", "DBE_VOL", "could not correct since the driver was loaded"),
    _ecc("corrected", "aggregate", "SBE_AGG", "corrected in the lifetime of the board"),
    _ecc("uncorrected", "aggregate", "DBE_AGG", "could not correct in the lifetime of the board"),
    _remapped("correctable", "could be corrected"),
    _remapped("uncorrectable", "could not be corrected"),
    Field(
        "row_remap_pending",
        "bool",
        "1 if a remapping waits for the next reset of the GPU, else 0.",
        "nvmlDeviceGetRemappedRows",
        dcgm="DCGM_FI_DEV_ROW_REMAP_PENDING",
    ),
    Field(
        "row_remap_failed",
        "bool",
        "1 if a remapping has failed, else 0.",
        "nvmlDeviceGetRemappedRows",
        dcgm="DCGM_FI_DEV_ROW_REMAP_FAILURE",
        aliases=("DCGM_FI_DEV_ROW_REMAP_FAILED",),
        otel="hw.status",
    ),
    _retired("single", 29, "SBE"),
    _retired("double", 30, "DBE"),
    Field(
        "retired_pages_pending",
        "bool",
        "1 if pages wait to be retired at the next reset of the GPU, else 0; cards before Ampere.",
        "nvmlDeviceGetFieldValues(31)",
        group="health",
        dcgm="DCGM_FI_DEV_RETIRED_PENDING",
        aliases=("DCGM_FI_DEV_PAGE_RETIRED_PENDING",),
        dcgm_1x="dcgm_retired_pages_pending",
    ),
    Field(
        "memory_used_ratio",
        "ratio",
        "Device memory that is allocated, as a fraction from 0 to 1 of what is not reserved.",
        "nvmlDeviceGetMemoryInfo_v2",
        tier=Tier.FAST,
        group="details",
        dcgm="DCGM_FI_DEV_FB_USED_PERCENT",
        aliases=("DCGM_FI_DEV_FB_USED_RATIO",),
        mig=True,
    ),
    _bar1("total", "used and free together"),
    _bar1("used", "the part in use"),
    _bar1("free", "the part that is free"),
    *(
        _located_ecc(kind, span, place)
        for span in (0, 1)
        for place in range(PLACES)
        for kind in (0, 1)
    ),
    Field(
        "sram_errors_exceeded",
        "bool",
        "1 if the uncorrectable errors of the SRAM exceed the threshold of NVIDIA's field "
        "diagnostics, else 0.",
        "nvmlDeviceGetSramEccErrorStatus",
        group="details",
        dcgm="DCGM_FI_DEV_THRESHOLD_SRM",
        aliases=("DCGM_FI_DEV_SRAM_EXCEEDED",),
        since="ampere",
    ),
    _bank_remap("max", "all rows"),
    _bank_remap("high", "most rows"),
    _bank_remap("partial", "some rows"),
    _bank_remap("low", "few rows"),
    _bank_remap("none", "no rows"),
)
