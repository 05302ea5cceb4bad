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
    _text(
        "inforom_oem_version",
        "DCGM_FI_DEV_OEM_INFOROM_VER",
        "nvmlDeviceGetInforomVersion(0)",
        "Version of the inforom's OEM object.",
        "DCGM_FI_DEV_INFOROM_OEM_VERSION",
    ),
    _text(
        "inforom_ecc_version",
        "DCGM_FI_DEV_ECC_INFOROM_VER",
        "nvmlDeviceGetInforomVersion(1)",
        "Version of the inforom's ECC object.",
        "DCGM_FI_DEV_INFOROM_ECC_VERSION",
    ),
    _text(
        "inforom_power_version",
        "DCGM_FI_DEV_POWER_INFOROM_VER",
        "nvmlDeviceGetInforomVersion(2)",
        "Version of the inforom's power object.",
        "DCGM_FI_DEV_INFOROM_POWER_VERSION",
    ),
    _text(
        "gsp_firmware_version",
        "",
        "nvmlDeviceGetGspFirmwareVersion",
        "Version of the GPU system processor's firmware.",
    ),
)
