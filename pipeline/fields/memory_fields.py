"""Fields of the device memory: size, errors, rows and pages."""

from pipeline.fields.field import Field, Tier

_MIB = 1 << 20


def _memory(name: str, about: str, *, dcgm_1x: str = "", otel: str = "", dcgm: str) -> Field:
    return Field(
        f"memory_{name}_bytes",
        "gauge",
        "bytes",
        f"Device memory{about}.",
        "nvmlDeviceGetMemoryInfo_v2",
        Tier.FAST,
        dcgm=dcgm,
        dcgm_1x=dcgm_1x,
        dcgm_divisor=_MIB,
        dcgm_unit="MiB",
        otel=otel,
        mig=True,
    )


def _ecc(kind: str, span: str, dcgm: str, about: str) -> Field:
    volatile = span == "volatile"
    return Field(
        f"ecc_{kind}_{span}",
        "counter",
        "errors",
        f"Memory errors that ECC {about}.",
        "nvmlDeviceGetTotalEccErrors",
        Tier.SLOW,
        dcgm=f"DCGM_FI_DEV_ECC_{dcgm}_TOTAL",
        dcgm_1x=f"dcgm_ecc_{dcgm[:3].lower()}_{span}_total",
        otel="hw.errors" if volatile else "",
        otel_attrs=(("error.type", kind),) if volatile else (),
    )


def _retired(bits: str, number: int, dcgm: str) -> Field:
    return Field(
        f"retired_pages_{bits}_bit",
        "counter",
        "pages",
        f"Memory pages retired after {bits}-bit errors; cards before Ampere.",
        f"nvmlDeviceGetFieldValues({number})",
        Tier.SLOW,
        group="health",
        dcgm=f"DCGM_FI_DEV_RETIRED_{dcgm}",
        aliases=(f"DCGM_FI_DEV_PAGE_RETIRED_{dcgm}_TOTAL",),
        dcgm_1x=f"dcgm_retired_pages_{dcgm.lower()}",
    )


MEMORY: tuple[Field, ...] = (
    _memory(
        "total",
        ": used, free and reserved together",
        dcgm="DCGM_FI_DEV_FB_TOTAL",
        otel="hw.gpu.memory.limit",
    ),
    _memory(
        "free",
        " that can still be allocated",
        dcgm="DCGM_FI_DEV_FB_FREE",
        dcgm_1x="dcgm_fb_free",
    ),
    _memory(
        "used",
        " that is allocated, without what the driver reserves",
        dcgm="DCGM_FI_DEV_FB_USED",
        dcgm_1x="dcgm_fb_used",
        otel="hw.gpu.memory.usage",
    ),
    _memory(
        "reserved",
        " that the driver and the firmware reserve",
        dcgm="DCGM_FI_DEV_FB_RESERVED",
    ),
    _ecc("corrected", "volatile", "SBE_VOL", "corrected since the driver was loaded"),
    _ecc("uncorrected", "volatile", "DBE_VOL", "could not correct since the driver was loaded"),
    _ecc("corrected", "aggregate", "SBE_AGG", "corrected in the lifetime of the board"),
    _ecc("uncorrected", "aggregate", "DBE_AGG", "could not correct in the lifetime of the board"),
    Field(
        "remapped_rows_correctable",
        "counter",
        "rows",
        "Memory rows remapped after errors that could be corrected.",
        "nvmlDeviceGetRemappedRows",
        Tier.SLOW,
        dcgm="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        aliases=("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",),
        otel="hw.errors",
        otel_attrs=(("error.type", "row_remap_correctable"),),
    ),
    Field(
        "remapped_rows_uncorrectable",
        "counter",
        "rows",
        "Memory rows remapped after errors that could not be corrected.",
        "nvmlDeviceGetRemappedRows",
        Tier.SLOW,
        dcgm="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        aliases=("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",),
        otel="hw.errors",
        otel_attrs=(("error.type", "row_remap_uncorrectable"),),
    ),
    Field(
        "row_remap_pending",
        "gauge",
        "bool",
        "1 if a remapping waits for the next reset of the GPU, else 0.",
        "nvmlDeviceGetRemappedRows",
        Tier.SLOW,
        dcgm="DCGM_FI_DEV_ROW_REMAP_PENDING",
    ),
    Field(
        "row_remap_failed",
        "gauge",
        "bool",
        "1 if a remapping has failed, else 0.",
        "nvmlDeviceGetRemappedRows",
        Tier.SLOW,
        dcgm="DCGM_FI_DEV_ROW_REMAP_FAILURE",
        aliases=("DCGM_FI_DEV_ROW_REMAP_FAILED",),
        otel="hw.status",
    ),
    _retired("single", 29, "SBE"),
    _retired("double", 30, "DBE"),
    Field(
        "retired_pages_pending",
        "gauge",
        "bool",
        "1 if pages wait to be retired at the next reset of the GPU, else 0; cards before Ampere.",
        "nvmlDeviceGetFieldValues(31)",
        Tier.SLOW,
        group="health",
        dcgm="DCGM_FI_DEV_RETIRED_PENDING",
        aliases=("DCGM_FI_DEV_PAGE_RETIRED_PENDING",),
        dcgm_1x="dcgm_retired_pages_pending",
    ),
)
