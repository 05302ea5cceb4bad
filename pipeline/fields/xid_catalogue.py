"""All XID codes of NVIDIA's catalogue, with what they mean and what to do.

The codes and actions are facts of NVIDIA's public catalogue, which is for Ampere and newer GPUs
(docs.nvidia.com/deploy/xid-errors). The descriptions are podgpu's own. Codes that the catalogue
calls unused on these GPUs have the meaning that they have on older ones.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Action: TypeAlias = Literal[
    "none",
    "restart_app",
    "reset_gpu",
    "restart_vm",
    "reboot_node",
    "check_hardware",
    "update_software",
    "follow_procedure",
    "see_recovery_action",
    "contact_vendor",
    "unknown",
]
"""The immediate action that NVIDIA advises. `ADVICE` has a sentence for each."""

AlertClass: TypeAlias = Literal["", "hardware", "memory", "fabric", "application"]
"""The shipped alert that names a code, `PodgpuXid<Class>`; empty if none does."""

ADVICE: Final[Mapping[Action, str]] = {
    "none": "do nothing for this error alone",
    "restart_app": "restart the program",
    "reset_gpu": "reset the GPU",
    "restart_vm": "restart the virtual machine",
    "reboot_node": "reboot the node",
    "check_hardware": "check the board, its power and its connectors",
    "update_software": "update driver and firmware",
    "follow_procedure": "follow NVIDIA's procedure for this code",
    "see_recovery_action": "do what the GPU requests, see podgpu_recovery_action",
    "contact_vendor": "contact the vendor of the GPU",
    "unknown": "NVIDIA's catalogue names no action",
}


class Xid(NamedTuple):
    """An XID code.

    Attributes:
        meaning: a short description.
        action: the immediate action that NVIDIA advises; `unknown` if its catalogue names none.
        alert: the shipped alert that names the code.
    """

    meaning: str
    action: Action
    alert: AlertClass = ""

    @property
    def advice(self) -> str:
        """The action as a sentence."""
        return ADVICE[self.action]


XIDS: Final[Mapping[int, Xid]] = {
    1: Xid("Invalid commands in a channel's queue", "contact_vendor"),
    2: Xid("Invalid software command in a channel's queue", "contact_vendor"),
    3: Xid("Unknown command in a channel's queue", "contact_vendor"),
    4: Xid("Channel stayed busy", "contact_vendor"),
    5: Xid("Queue of a channel ran over", "contact_vendor"),
    6: Xid("Commands of a channel could not be parsed", "contact_vendor"),
    7: Xid("Invalid address of a channel's commands", "contact_vendor"),
    8: Xid("Channel timed out", "restart_app", "application"),
    9: Xid("Driver programmed the GPU wrongly", "contact_vendor"),
    10: Xid("Graphics engine stopped in single steps", "contact_vendor"),
    11: Xid("Invalid stream of commands for the graphics engine", "restart_app", "application"),
    12: Xid("Driver could not handle an exception of the graphics engine", "contact_vendor"),
    13: Xid("Exception in the graphics engine", "restart_app", "application"),
    14: Xid("Error that was made for a test", "none"),
    15: Xid("Display timed out at a scan line", "contact_vendor"),
    16: Xid("Display timed out at a vertical blank", "contact_vendor"),
    17: Xid("Invalid parameter in the display engine", "contact_vendor"),
    18: Xid("GPU may not access the system's memory over the bus", "contact_vendor"),
    19: Xid("Display engine missed a notification", "contact_vendor"),
    20: Xid("Invalid commands for the MPEG decoder", "contact_vendor"),
    21: Xid("Invalid commands for motion estimation", "contact_vendor"),
    22: Xid("Invalid commands for the video processor", "contact_vendor"),
    23: Xid("Logging of channel recoveries is on", "contact_vendor"),
    24: Xid("GPU semaphore timed out", "contact_vendor"),
    25: Xid("Illegal notification in a stream of commands", "restart_app", "application"),
    26: Xid("Framebuffer timed out", "contact_vendor"),
    27: Xid("Error of the video engine VP", "contact_vendor"),
    28: Xid("Error of the video engine VP2", "contact_vendor"),
    29: Xid("Error of the video engine BSP", "contact_vendor"),
    30: Xid("Access to an invalid address of a semaphore", "contact_vendor"),
    31: Xid("Page fault in the GPU's memory", "restart_app", "application"),
    32: Xid("Corrupt stream of commands", "restart_app", "application"),
    33: Xid("Error of the security engine", "contact_vendor"),
    34: Xid("Error of the video engine MSVLD", "contact_vendor"),
    35: Xid("Error of the video engine MSPDEC", "contact_vendor"),
    36: Xid("Error of the video engine MSPPP", "contact_vendor"),
    37: Xid("Driver used an unknown method of the graphics engine's firmware", "none"),
    38: Xid("Fault in the driver's firmware", "none"),
    39: Xid("Error of copy engine 0", "restart_app", "application"),
    40: Xid("Error of copy engine 1", "restart_app", "application"),
    41: Xid("Error of copy engine 2", "restart_app", "application"),
    42: Xid("Error of the video engine VIC", "contact_vendor"),
    43: Xid("Channel reset after a program's fault", "none", "application"),
    44: Xid("Fault at a switch of contexts", "none"),
    45: Xid("Channels cleaned up after an earlier error", "follow_procedure"),
    46: Xid("GPU stopped working on a channel", "reset_gpu", "hardware"),
    47: Xid("Error of video encoder 0", "contact_vendor"),
    48: Xid("Uncorrectable ECC error", "follow_procedure", "hardware"),
    49: Xid("Power state fixed by configuration", "contact_vendor"),
    50: Xid("Power state changed after a channel error", "contact_vendor"),
    51: Xid("Power stress test failed", "contact_vendor"),
    52: Xid("Power state changed because of the temperature", "contact_vendor"),
    53: Xid("Clocks reduced because of the temperature", "contact_vendor"),
    54: Xid("Auxiliary power is not connected", "check_hardware", "hardware"),
    55: Xid("Temperature could not be read", "contact_vendor"),
    56: Xid("Error of the display engine", "contact_vendor"),
    57: Xid("Training of the memory interface failed", "contact_vendor"),
    58: Xid("Memory interface is unstable", "contact_vendor"),
    59: Xid("Internal microcontroller error", "contact_vendor"),
    60: Xid("Error of the security engine SEC2", "restart_app", "application"),
    61: Xid("Internal microcontroller stopped at a breakpoint", "contact_vendor"),
    62: Xid("Internal microcontroller halted", "reset_gpu", "hardware"),
    63: Xid("Page retired or row remapped", "none"),
    64: Xid("Page could not be retired or row not remapped", "reset_gpu", "hardware"),
    65: Xid("Error of video encoder 1", "contact_vendor"),
    66: Xid("Driver made an illegal access to a register", "none"),
    67: Xid("Driver broke a rule of the graphics engine's firmware", "none"),
    68: Xid("Error of video decoder 0", "restart_app", "application"),
    69: Xid("Error of the graphics engine's class", "restart_app", "application"),
    70: Xid("Error of copy engine 3", "restart_app", "application"),
    71: Xid("Error of copy engine 4", "restart_app", "application"),
    72: Xid("Error of copy engine 5", "restart_app", "application"),
    73: Xid("Error of video encoder 2", "contact_vendor"),
    74: Xid("NVLink error", "follow_procedure", "fabric"),
    75: Xid("Error of copy engine 6", "restart_app", "application"),
    76: Xid("Error of copy engine 7", "restart_app", "application"),
    77: Xid("Error of copy engine 8", "restart_app", "application"),
    78: Xid("Virtual GPU could not be started", "update_software"),
    79: Xid("GPU has fallen off the bus", "reboot_node", "hardware"),
    80: Xid("Data for the GPU arrived corrupted", "restart_app", "application"),
    81: Xid("Error of the VGA subsystem", "contact_vendor"),
    82: Xid("Error of JPEG decoder 0", "restart_app", "application"),
    83: Xid("Error of video decoder 1", "restart_app", "application"),
    84: Xid("Error of video decoder 2", "restart_app", "application"),
    85: Xid("Error of copy engine 9", "restart_app", "application"),
    86: Xid("Error of optical flow accelerator 0", "restart_app", "application"),
    87: Xid("Report of the driver's telemetry", "contact_vendor"),
    88: Xid("Error of video decoder 3", "restart_app", "application"),
    89: Xid("Error of video decoder 4", "restart_app", "application"),
    90: Xid("Error of the L2 cache", "contact_vendor"),
    91: Xid("Reserved code", "contact_vendor"),
    92: Xid("Many correctable ECC errors", "none", "memory"),
    93: Xid("Inforom was written more often than its limit allows", "none"),
    94: Xid("Contained ECC error", "restart_app", "memory"),
    95: Xid("Uncontained ECC error", "reset_gpu", "hardware"),
    96: Xid("Error of video decoder 5", "restart_app", "application"),
    97: Xid("Error of video decoder 6", "restart_app", "application"),
    98: Xid("Error of video decoder 7", "restart_app", "application"),
    99: Xid("Error of JPEG decoder 1", "restart_app", "application"),
    100: Xid("Error of JPEG decoder 2", "restart_app", "application"),
    101: Xid("Error of JPEG decoder 3", "restart_app", "application"),
    102: Xid("Error of JPEG decoder 4", "restart_app", "application"),
    103: Xid("Error of JPEG decoder 5", "restart_app", "application"),
    104: Xid("Error of JPEG decoder 6", "restart_app", "application"),
    105: Xid("Error of JPEG decoder 7", "restart_app", "application"),
    106: Xid("Test message of the out-of-band interface", "none"),
    107: Xid("Silent test message of the out-of-band interface", "none"),
    108: Xid("NVLink peer could not translate an address", "none"),
    109: Xid("Context switch timed out", "reset_gpu", "hardware"),
    110: Xid("Security fault", "reset_gpu", "hardware"),
    111: Xid("Error in a bundle of display commands", "contact_vendor"),
    112: Xid("Error of the display supervisor", "contact_vendor"),
    113: Xid("Training of a DisplayPort link failed", "contact_vendor"),
    114: Xid("Display ran out of pixels", "contact_vendor"),
    115: Xid("Error of the display's core channel", "contact_vendor"),
    116: Xid("Error of a display window channel", "contact_vendor"),
    117: Xid("Error of a display cursor channel", "contact_vendor"),
    118: Xid("Error of a display head", "contact_vendor"),
    119: Xid("GSP did not answer in time", "reset_gpu", "hardware"),
    120: Xid("GSP error", "reset_gpu", "hardware"),
    121: Xid("Chip-to-chip link error", "none", "fabric"),
    122: Xid("Reading from the SPI flash failed", "contact_vendor"),
    123: Xid("Writing to the SPI flash failed", "contact_vendor"),
    124: Xid("Erasing the SPI flash failed", "contact_vendor"),
    125: Xid("Inforom's file system failed", "contact_vendor"),
    126: Xid("Error of copy engine 10", "restart_app", "application"),
    127: Xid("Error of copy engine 11", "restart_app", "application"),
    128: Xid("Error of copy engine 12", "restart_app", "application"),
    129: Xid("Error of copy engine 13", "restart_app", "application"),
    130: Xid("Error of copy engine 14", "restart_app", "application"),
    131: Xid("Error of copy engine 15", "restart_app", "application"),
    132: Xid("Error of copy engine 16", "restart_app", "application"),
    133: Xid("Error of copy engine 17", "restart_app", "application"),
    134: Xid("Error of copy engine 18", "restart_app", "application"),
    135: Xid("Error of copy engine 19", "restart_app", "application"),
    136: Xid("NVLink training failed", "reset_gpu", "fabric"),
    137: Xid("NVLink privilege error", "none", "fabric"),
    138: Xid("Error of the deep learning accelerator", "contact_vendor"),
    139: Xid("Error of optical flow accelerator 1", "restart_app", "application"),
    140: Xid("ECC error that was not recovered", "reset_gpu", "hardware"),
    141: Xid("Error of CUDA's fast path", "none"),
    142: Xid("Error of video encoder 3", "contact_vendor"),
    143: Xid("GPU could not be initialised", "reset_gpu", "hardware"),
    144: Xid("NVLink error in unit SAW", "follow_procedure", "fabric"),
    145: Xid("NVLink error in unit RLW", "follow_procedure", "fabric"),
    146: Xid("NVLink error in unit TLW", "follow_procedure", "fabric"),
    147: Xid("NVLink error in unit TREX", "follow_procedure", "fabric"),
    148: Xid("NVLink error in unit NVLPW", "follow_procedure", "fabric"),
    149: Xid("NVLink error in unit NETIR", "follow_procedure", "fabric"),
    150: Xid("NVLink error in unit MSE", "follow_procedure", "fabric"),
    151: Xid("Encryption keys could not be changed", "restart_vm"),
    152: Xid("Deep learning accelerator used an invalid address", "none"),
    153: Xid("Deep learning accelerator timed out", "none"),
    154: Xid("Recovery action of the GPU changed", "see_recovery_action"),
    155: Xid(
        "NVLink went down on purpose, or by an error that software defines", "reset_gpu", "fabric"
    ),
    156: Xid("Defective part of the GPU was retired", "reset_gpu", "hardware"),
    157: Xid("Defective part of the GPU could not be retired", "none", "memory"),
    158: Xid("GPU timed out and did not recover", "reset_gpu", "hardware"),
    159: Xid("Chip-to-chip link error without data", "follow_procedure"),
    160: Xid("Defective channel was retired", "none"),
    161: Xid("Defective channel could not be retired", "none", "memory"),
    162: Xid("Power smoothing is active again", "unknown"),
    163: Xid("Power smoothing is off", "unknown"),
    164: Xid("Power smoothing circuit is nearly worn out", "unknown"),
    165: Xid("Power smoothing circuit is worn out", "unknown"),
    166: Xid("NVLink had traffic before its encryption was set up", "unknown", "fabric"),
    167: Xid("PCIe timed out and did not recover", "unknown", "hardware"),
    168: Xid("GPU has less memory because of errors in a protected region", "unknown", "memory"),
    169: Xid("Security microcontroller halted", "unknown", "hardware"),
    170: Xid("NVLink error in confidential computing mode", "unknown", "fabric"),
    171: Xid("Uncorrectable ECC error in DRAM", "unknown", "hardware"),
    172: Xid("Uncorrectable ECC error in SRAM", "unknown", "hardware"),
}
"""The catalogue, by code."""

WATCHED: Final = tuple(
    sorted({45, 63, 154} | {code for code, known in XIDS.items() if known.alert})
)
"""Codes whose counters start at 0: those that a shipped alert names, and three frequent ones."""


def sentence(code: int) -> str:
    """Return what a code means and what to do; empty if it is not in the catalogue."""
    known = XIDS.get(code)
    return "" if known is None else f"{known.meaning}; advice: {known.advice}"
