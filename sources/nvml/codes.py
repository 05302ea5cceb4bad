"""What NVML's return codes mean to a sampler."""

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
"""Not NVML's: it gave a value that can't be true."""

UNASKED: Final = -2
"""Not NVML's: no call was made, which says nothing of the driver."""

UNSUPPORTED: Final = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND})
"""The device or the driver doesn't have this reading, and hardly will have it soon."""

NO_READING: Final = UNSUPPORTED | {INVALID_ARGUMENT, NO_PERMISSION, NOT_FOUND, UNASKED}
"""No value, and nothing wrong with the device."""

ALIVE: Final = UNSUPPORTED | {OK, NO_PERMISSION, OUT_OF_RANGE}
"""Answers that only a working driver gives."""

LOST: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED})
"""The whole device gives nothing until it is reset."""

DRIVER_GONE: Final = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
"""Every handle is void: NVML has to be initialised anew."""

_NAMES: Final = {
    OUT_OF_RANGE: "out_of_range",
    UNINITIALIZED: "uninitialized",
    INVALID_ARGUMENT: "invalid_argument",
    NOT_SUPPORTED: "not_supported",
    NO_PERMISSION: "no_permission",
    NOT_FOUND: "not_found",
    INSUFFICIENT_SIZE: "insufficient_size",
    INSUFFICIENT_POWER: "insufficient_power",
    DRIVER_NOT_LOADED: "driver_not_loaded",
    TIMEOUT: "timeout",
    11: "irq_issue",
    LIBRARY_NOT_FOUND: "library_not_found",
    FUNCTION_NOT_FOUND: "function_not_found",
    14: "corrupted_inforom",
    GPU_IS_LOST: "gpu_is_lost",
    RESET_REQUIRED: "reset_required",
    17: "operating_system",
    LIB_RM_VERSION_MISMATCH: "lib_rm_version_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    ARGUMENT_VERSION_MISMATCH: "argument_version_mismatch",
    26: "deprecated",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
    UNKNOWN: "unknown",
}


def name(code: int) -> str:
    """Return NVML's name of a code, in lower case; `error_N` for one that is not known."""
    return _NAMES.get(code, f"error_{code}")


class DeviceLostError(Exception):
    """A device answered that it is gone. Never leaves this package."""

    def __init__(self, code: int) -> None:
        super().__init__(name(code))
        self.code = code


class DriverGoneError(TransientError):
    """The driver as a whole doesn't work for this process: NVML has to be initialised anew.

    Args:
        code: NVML's.
        text: what happened and what helps; by default that the driver was reloaded.
    """

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(
            text
            or f"the NVIDIA driver answers {name(code)}: it was reloaded or upgraded; "
            "NVML is initialised anew, nothing needs to be done unless this repeats"
        )
        self.code = code


def check(code: int) -> None:
    """Raise for a code that concerns more than one reading.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    if code in LOST:
        raise DeviceLostError(code)
    check_driver(code)


def check_driver(code: int) -> None:
    """Raise for a code that concerns the driver.

    Raises:
        DriverGoneError: the driver is gone.
    """
    if code in DRIVER_GONE:
        raise DriverGoneError(code)
