"""Texts that never change, for labels: they stand in `Device.facts` and make no series."""

from pipeline.fields.field import Field, Tier


def _text(name: str, dcgm: str, call: str, about: str) -> Field:
    return Field(name, "label", "text", about, call, Tier.ONCE, group="labels", dcgm=dcgm)


LABELS: tuple[Field, ...] = (
    _text(
        "driver_version",
        "DCGM_FI_DRIVER_VERSION",
        "nvmlSystemGetDriverVersion",
        "Version of the kernel driver.",
    ),
    _text(
        "nvml_version",
        "DCGM_FI_NVML_VERSION",
        "nvmlSystemGetNVMLVersion",
        "Version of the NVML library.",
    ),
    _text("name", "DCGM_FI_DEV_NAME", "nvmlDeviceGetName", "Product name of the board."),
    _text("brand", "DCGM_FI_DEV_BRAND", "nvmlDeviceGetBrand", "Brand of the board."),
    _text("serial", "DCGM_FI_DEV_SERIAL", "nvmlDeviceGetSerial", "Serial number of the board."),
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
    ),
    _text(
        "inforom_oem_version",
        "DCGM_FI_DEV_OEM_INFOROM_VER",
        "nvmlDeviceGetInforomVersion(0)",
        "Version of the inforom's OEM object.",
    ),
    _text(
        "inforom_ecc_version",
        "DCGM_FI_DEV_ECC_INFOROM_VER",
        "nvmlDeviceGetInforomVersion(1)",
        "Version of the inforom's ECC object.",
    ),
    _text(
        "inforom_power_version",
        "DCGM_FI_DEV_POWER_INFOROM_VER",
        "nvmlDeviceGetInforomVersion(2)",
        "Version of the inforom's power object.",
    ),
    _text(
        "gsp_firmware_version",
        "",
        "nvmlDeviceGetGspFirmwareVersion",
        "Version of the GPU system processor's firmware.",
    ),
)
