"""Descriptions of XID codes, for the two labels that dcgm-exporter adds to the last XID error.

The codes are from NVIDIA's public catalogue of XID errors. The descriptions are podgpu's own.
"""

from collections.abc import Mapping
from typing import Final

UNKNOWN: Final = "Unknown Error"

XIDS: Final[Mapping[int, str]] = {
    0: "No Error",
    8: "Channel timed out",
    13: "Exception in the graphics engine",
    31: "Page fault in the GPU's memory",
    32: "Corrupt stream of commands",
    38: "Fault in the driver's firmware",
    43: "Channel reset after a program's fault",
    44: "Fault at a switch of contexts",
    45: "Channels cleaned up after an earlier error",
    48: "Uncorrectable ECC error",
    61: "Internal microcontroller stopped at a breakpoint",
    62: "Internal microcontroller halted",
    63: "Page retired or row remapped",
    64: "Page could not be retired or row not remapped",
    68: "Exception in the video decoder",
    69: "Error of the graphics engine's class",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "Many correctable ECC errors",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    109: "Context switch timed out",
    110: "Security fault",
    119: "GSP did not answer in time",
    120: "GSP error",
    121: "Chip-to-chip link error",
    122: "Reading from the SPI flash failed",
    123: "Writing to the SPI flash failed",
    125: "Inforom's file system failed",
    136: "NVLink training failed",
    137: "NVLink privilege error",
    140: "ECC error that was not recovered",
    143: "GPU could not be initialised",
    154: "Recovery action of the GPU changed",
    158: "GPU timed out for good",
}


def xid_labels(code: bytes) -> bytes:
    """Return the end of a sample line for an XID code: its two labels, and the code as value.

    Args:
        code: the code as text. A value that was read from another page may have the form `79.0`.
    """
    code = code.removesuffix(b".0")
    text = XIDS.get(int(code), UNKNOWN) if code.isdigit() else UNKNOWN
    return b',err_code="%b",err_msg="%b"} %b' % (code, text.encode(), code)
