"""Fields of the device memory: size, errors, rows and pages."""

from pipeline.fields.field import Field, Tier

_MIB = 1 << 20


def _memory(name: str, about: str, *, dcgm_1x: str = "", otel: str = "") -> Field:
    return Field(
        f"memory_{name}_bytes",
        "bytes",
        f"Device memory{about}.",
        "nvmlDeviceGetMemoryInfo_v2",
        tier=Tier.FAST,
        dcgm=f"DCGM_FI_DEV_FB_{name.upper()}",
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
)
