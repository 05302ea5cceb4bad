"""Texts of a board that never change: serial number, firmware versions."""

import ctypes
from collections.abc import Iterator
from typing import Final

from sources.nvml import codes, library
from sources.nvml.library import Handle, Library

_TEXTS: Final = (
    ("name", "nvmlDeviceGetName"),
    ("serial", "nvmlDeviceGetSerial"),
    ("part_number", "nvmlDeviceGetBoardPartNumber"),
    ("vbios_version", "nvmlDeviceGetVbiosVersion"),
    ("inforom_image_version", "nvmlDeviceGetInforomImageVersion"),
)
_INFOROM: Final = (
    ("inforom_oem_version", 0),
    ("inforom_ecc_version", 1),
    ("inforom_power_version", 2),
)

# By nvmlBrandType_t; the texts are DCGM's.
_BRANDS: Final = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA vGaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}

Facts = tuple[tuple[str, str], ...]


def of_driver(nvml: Library) -> Facts:
    """Return the versions of driver and library.

    Raises:
        DriverGoneError: the driver is gone.
    """
    answers = (
        ("driver_version", nvml.text("nvmlSystemGetDriverVersion")),
        ("nvml_version", nvml.text("nvmlSystemGetNVMLVersion")),
    )
    return tuple((name, text) for name, answer in answers if (text := _text_or_empty(answer)))


def of_board(nvml: Library, handle: Handle) -> Iterator[tuple[str, str]]:
    """Yield the facts of a board that the driver reports.

    Each takes some microseconds. The checksum of the inforom is not read: it takes 70 ms.

    Raises:
        DriverGoneError: the driver is gone.
    """
    for name, call in _TEXTS:
        if text := _text_or_empty(nvml.text(call, handle)):
            yield name, text
    for name, part in _INFOROM:
        if text := _text_or_empty(
            nvml.text("nvmlDeviceGetInforomVersion", handle, ctypes.c_int(part))
        ):
            yield name, text
    code, brand = nvml.number("nvmlDeviceGetBrand", handle)
    codes.check_driver(code)
    if code == 0 and brand in _BRANDS:
        yield "brand", _BRANDS[brand]
    buffer = library.text_buffer()
    code = nvml.call("nvmlDeviceGetGspFirmwareVersion", handle, buffer)
    if text := _text_or_empty((code, library.decoded(buffer))):
        yield "gsp_firmware_version", text


def _text_or_empty(answer: tuple[int, str]) -> str:
    code, text = answer
    codes.check_driver(code)
    return text.strip() if code == 0 else ""
