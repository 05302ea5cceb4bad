"""Fields of the type `label`: constant texts in `Device.facts`, without series."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pipeline.fields.board_fields import BOARDS
from pipeline.fields.device_fields import DEVICES
from pipeline.fields.field import Field, Tier
from pipeline.fields.link_fields import LINKS

_SUFFIX: Final = "_label"


def _text(name: str, call: str, about: str, dcgm: str = "", *renamed: str) -> Field:
    """Return a field of the type `label`.

    Args:
        name: podgpu's name.
        call: name of the NVML call, without the prefix.
        about: one sentence for the documentation.
        dcgm: name in DCGM without its prefix; empty if DCGM does not have the field.
        renamed: names in newer releases of DCGM, without the prefix.
    """
    return Field(
        name,
        "text",
        about,
        f"nvml{call}",
        type="label",
        tier=Tier.ONCE,
        group="labels",
        dcgm=dcgm and f"DCGM_FI_{dcgm}",
        aliases=tuple(f"DCGM_FI_{each}" for each in renamed),
    )


def _inforom(number: int, name: str, about: str) -> Field:
    unit = name.upper()
    return _text(
        f"inforom_{name}_version",
        f"DeviceGetInforomVersion({number})",
        f"Version of the inforom's {about}.",
        f"DEV_{unit}_INFOROM_VER",
        f"DEV_INFOROM_{unit}_VERSION",
    )


def _numbers() -> Iterator[Field]:
    """Yield a label for each constant number of the group `details`: DCGM has it as either."""
    for field in (*BOARDS, *LINKS, *DEVICES):
        if field.group == "details" and field.tier is Tier.ONCE:
            yield replace(
                field,
                name=f"{field.name}{_SUFFIX}",
                unit="text",
                type="label",
                group="labels",
                dcgm_base="",
            )


def number_of(label: str) -> str:
    """Return the field whose number a label field has; an empty text for a text."""
    return label.removesuffix(_SUFFIX) if label.endswith(_SUFFIX) else ""


BOARD_LABELS: Final[tuple[Field, ...]] = (
    _text(
        "driver_version",
        "SystemGetDriverVersion",
        "Version of the kernel driver.",
        "DRIVER_VERSION",
        "SYSTEM_DRIVER_VERSION",
    ),
    _text(
        "nvml_version",
        "SystemGetNVMLVersion",
        "Version of the NVML library.",
        "NVML_VERSION",
        "SYSTEM_NVML_VERSION",
    ),
    _text("name", "DeviceGetName", "Product name of the board.", "DEV_NAME", "DEV_GPU_NAME"),
    _text("brand", "DeviceGetBrand", "Brand of the board.", "DEV_BRAND", "DEV_GPU_BRAND"),
    _text(
        "serial", "DeviceGetSerial", "Serial number of the board.", "DEV_SERIAL", "DEV_BOARD_SERIAL"
    ),
    _text("part_number", "DeviceGetBoardPartNumber", "Part number of the board."),
    _text(
        "vbios_version", "DeviceGetVbiosVersion", "Version of the video BIOS.", "DEV_VBIOS_VERSION"
    ),
    _text(
        "inforom_image_version",
        "DeviceGetInforomImageVersion",
        "Version of the inforom's image.",
        "DEV_INFOROM_IMAGE_VER",
        "DEV_INFOROM_IMAGE_VERSION",
    ),
    _inforom(0, "oem", "OEM object"),
    _inforom(1, "ecc", "ECC object"),
    _inforom(2, "power", "power object"),
    _text(
        "gsp_firmware_version",
        "DeviceGetGspFirmwareVersion",
        "Version of the GPU system processor's firmware.",
    ),
)
"""The labels of `podgpu_device_board_info`, in order."""

LABELS: Final[tuple[Field, ...]] = (
    *BOARD_LABELS,
    _text(
        "process_name",
        "SystemGetProcessName",
        "Name of podgpu's process; in DCGM, of the process that runs DCGM.",
        "PROCESS_NAME",
        "SYSTEM_PROCESS_NAME",
    ),
    *_numbers(),
)
