"""NVML's return codes, grouped by what they mean for sampling, and how to fix their causes."""

from typing import Final

from pipeline.base.errors import TransientError

OK: Final = 0
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
INSUFFICIENT_POWER: Final = 8
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
LIB_RM_VERSION_MISMATCH: Final = 18
ARGUMENT_VERSION_MISMATCH: Final = 25
UNKNOWN: Final = 999

OUT_OF_RANGE: Final = -1
"""Not a code of NVML: the value is impossible."""

NOT_CALLED: Final = -2
"""Not a code of NVML: no call was made, so the state of the driver is unknown."""

UNSUPPORTED: Final = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND})
"""The device or the driver lacks this reading, and this rarely changes."""

NO_READING: Final = UNSUPPORTED | {INVALID_ARGUMENT, NO_PERMISSION, NOT_FOUND, NOT_CALLED}
"""There is no value, and the device has no fault."""

ALIVE: Final = frozenset({OK, NOT_SUPPORTED, NO_PERMISSION, OUT_OF_RANGE})
"""Codes which show that the driver works."""

LOST: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED})
"""The device returns no data until it is reset."""

DRIVER_GONE: Final = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
"""All handles are invalid: NVML must be initialised again."""

_NAMES: Final = {
    11: "irq_issue",
    14: "corrupted_inforom",
    17: "operating_system",
    19: "in_use",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    26: "deprecated",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
    **{code: name.lower() for name, code in globals().items() if isinstance(code, int)},
}
"""NVML's names of the codes, in lower case; for the constants above, the names of the constants."""

RELOADED: Final = (
    "restart podgpu's pod; so that it does not lose access again, switch the runtime to CDI, or "
    "the container toolkit to a release that creates links in /dev/char (nvidia-ctk system "
    "create-dev-char-symlinks): then a daemon-reload of systemd does not remove the devices"
)

OPENING: Final = {
    LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is missing: install the NVIDIA driver; if the node has it, run podgpu "
        "with the runtime class of NVIDIA's container toolkit (runtimeClassName: nvidia), or make "
        "that the default runtime, and include utility in NVIDIA_DRIVER_CAPABILITIES"
    ),
    DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded: load it on the node (modprobe nvidia), and check "
        "that /dev/nvidiactl exists in the container"
    ),
    LIB_RM_VERSION_MISMATCH: (
        "the NVML library and the loaded kernel driver have different versions, as after an "
        "upgrade: reload the driver or reboot, then restart the container"
    ),
    NO_PERMISSION: (
        "no permission to open the NVIDIA devices: the process needs read and write access to "
        "/dev/nvidiactl and /dev/nvidia0, 1, ..."
    ),
    UNKNOWN: (
        "podgpu's container lost access to the devices, or the driver is broken: "
        f"{RELOADED}; otherwise see the kernel log (dmesg) for NVRM messages"
    ),
}
"""Why NVML cannot be opened, and how to fix it."""


def name(code: int) -> str:
    """Return NVML's name of a code in lower case; `error_N` for an unknown code."""
    return _NAMES.get(code, f"error_{code}")


class DeviceLostError(Exception):
    """NVML reports that a device is lost. The error is handled within this package."""

    def __init__(self, code: int) -> None:
        super().__init__(name(code))
        self.code = code


class DriverGoneError(TransientError):
    """The driver does not work for this process: NVML must be initialised again.

    Args:
        code: NVML's code.
        text: what happened and what to do; by default, that the driver was reloaded.
    """

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(
            text
            or f"the NVIDIA driver returned {name(code)}: it was reloaded or upgraded; podgpu "
            "initialises NVML again, and no action is needed unless this repeats"
        )
        self.code = code


def check(code: int) -> None:
    """Raise an error if a code means that the device or the driver is gone.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    if code in LOST:
        raise DeviceLostError(code)
    check_driver(code)


def check_driver(code: int) -> None:
    """Raise an error if a code means that the driver is gone.

    Raises:
        DriverGoneError: the driver is gone.
    """
    if code in DRIVER_GONE:
        raise DriverGoneError(code)
