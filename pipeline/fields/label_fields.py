"""Fields of type label: constant texts in `Device.facts`, without series."""

from pipeline.fields.field import Field, Tier


def _text(name: str, dcgm: str, call: str, about: str, renamed: str = "") -> Field:
    return Field(
        name,
        "label",
        "text",
        about,
        call,
        Tier.ONCE,
        group="labels",
        dcgm=dcgm,
        aliases=(renamed,) if renamed else (),
    )


def _inforom(number: int, name: str, about: str) -> Field:
    unit = name.upper()
    return _text(
        f"inforom_{name}_version",
        f"DCGM_FI_DEV_{unit}_INFOROM_VER",
        f"nvmlDeviceGetInforomVersion({number})",
        f"Version of the inforom's {about}.",
        f"DCGM_FI_DEV_INFOROM_{unit}_VERSION",
    )


LABELS: tuple[Field, ...] = (
    _text(
        "driver_version",
        "DCGM_FI_DRIVER_VERSION",
        "nvmlSystemGetDriverVersion",
        "Version of the kernel driver.",
        "DCGM_FI_SYSTEM_DRIVER_VERSION",
    ),
    _text(
        "nvml_version",
        "DCGM_FI_NVML_VERSION",
        "nvmlSystemGetNVMLVersion",
        "Version of the NVML library.",
        "DCGM_FI_SYSTEM_NVML_VERSION",
    ),
    _text(
        "name",
        "DCGM_FI_DEV_NAME",
        "nvmlDeviceGetName",
        "Product name of the board.",
        "DCGM_FI_DEV_GPU_NAME",
    ),
    _text(
        "brand",
        "DCGM_FI_DEV_BRAND",
        "nvmlDeviceGetBrand",
        "Brand of the board.",
        "DCGM_FI_DEV_GPU_BRAND",
    ),
    _text(
        "serial",
        "DCGM_FI_DEV_SERIAL",
        "nvmlDeviceGetSerial",
        "Serial number of the board.",
        "DCGM_FI_DEV_BOARD_SERIAL",
    ),
    _text(
        "part_number",
        "",
        "nvmlDeviceGetBoardPartNumber",
        "Part number of the board.",
    ),
    _text(
        "vbios_version",
        "DCGM_FI_DEV_VBIOS_VERSION",
        "nvmlDeviceGetVbiosVersion",
        "Version of the video BIOS.",
    ),
    _text(
        "inforom_image_version",
        "DCGM_FI_DEV_INFOROM_IMAGE_VER",
        "nvmlDeviceGetInforomImageVersion",
        "Version of the inforom's image.",
        "DCGM_FI_DEV_INFOROM_IMAGE_VERSION",
    ),
    _inforom(0, "oem", "OEM object"),
    _inforom(1, "ecc", "ECC object"),
    _inforom(2, "power", "power object"),
    _text(
        "gsp_firmware_version",
        "",
        "nvmlDeviceGetGspFirmwareVersion",
        "Version of the GPU system processor's firmware.",
    ),
)
