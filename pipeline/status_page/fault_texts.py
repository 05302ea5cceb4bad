"""Texts of the faults of GPUs: what happened, how severe it is, and what to do."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from pipeline.status_page.display_text import CONFLICT
from pipeline.status_page.fault_memory import KnownFault

Severity: TypeAlias = Literal["critical", "warning", "info"]

UNLISTED_XID: Final = "a code that is not in NVIDIA's catalogue"
UNLISTED_XID_ADVICE: Final = "look for the line with this code in the kernel log"

UNCLAIMED_ADVICE: Final = (
    "let their pods request a GPU, or end their processes, which disturb the holders"
)

RESETS: Final = frozenset({"1", "2", "4"})
"""Recovery actions that reset the GPU."""

_DRAIN: Final = "when no pod uses it, reset the GPU or reboot the node"
_FREE: Final = "no pod uses it now: reset the GPU"

_VENDOR: Final = "contact the vendor of the GPU"
_BOARD: Final = f"drain the node and {_VENDOR}"

_TEXTS: Final[Mapping[str, tuple[Severity, str, str]]] = {
    "gpu_lost": (
        "critical",
        " is lost: it was present before and no longer responds",
        (
            "look for its XID errors, drain the node and reboot it; if the GPU stays away, check "
            "the board, its power and its connectors"
        ),
    ),
    "row_remap_failed": (
        "critical",
        ": a broken row of its memory could not be replaced, no spare row is left",
        _BOARD,
    ),
    "row_remap_pending": (
        "warning",
        ": a broken row of its memory waits to be replaced at the next reset",
        _DRAIN,
    ),
    "retired_pages_pending": (
        "warning",
        ": broken pages of its memory wait to be retired at the next reset",
        _DRAIN,
    ),
    "sram_errors_exceeded": (
        "critical",
        ": uncorrected errors of its SRAM exceed the threshold of NVIDIA's field diagnostics",
        _BOARD,
    ),
}

_SLOWDOWNS: Final[Mapping[str, tuple[str, str]]] = {
    "sw_thermal": (
        "the driver reduces its clocks, because it is close to its highest temperature",
        "check fans, air flow and the temperature of the room",
    ),
    "hw_thermal": (
        "the hardware reduces its clocks to a half or less, because it is too hot",
        "check fans, air flow and the temperature of the room",
    ),
    "hw_power_brake": (
        "the hardware reduces its clocks to a half or less, because the power supply asks for it",
        "check the power supplies of the node and the power limit of the rack",
    ),
    "hw_slowdown": (
        "the hardware reduces its clocks to a half or less, because of heat or power",
        "check its cooling and its power supply",
    ),
}

_RESET: Final = "drain the GPU and reset it"

_ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "1": ("a reset", _RESET),
    "2": ("a reboot of the node", "drain the node and reboot it"),
    "3": ("that the GPUs connected to it are drained", "drain the GPU and its peers"),
    "4": ("a drain and a reset", "drain the GPU and its peers, and reset it"),
}

_PENDING: Final = frozenset({"row_remap_pending", "retired_pages_pending"})


def fault_text(
    fault: KnownFault, where: str, *, recent: bool, held: bool, asked: bool
) -> tuple[Severity, str, str | None]:
    """Return the severity of a fault, what happened, and what to do.

    Args:
        fault: the fault.
        where: name of the device.
        recent: whether it began within the last hour.
        held: whether a container holds or uses the device, or whether that is unknown.
        asked: whether the driver asks for a reset or a reboot, which is a fault of its own.
    """
    kind, detail = fault.key.kind, fault.key.detail
    if kind == "slowdown":
        why, advice = _SLOWDOWNS[detail]
        return "warning", f"{where}: {why}", advice
    if kind == "recovery_action":
        action, advice = _ACTIONS.get(
            detail, (f"recovery action {detail}", "look up the action in the driver's documents")
        )
        if advice == _RESET and not held:
            advice = _FREE
        return "critical", f"{where}: the driver asks for {action}", advice
    if kind == "conflict":
        return (
            "warning",
            f"{where}: {CONFLICT}",
            "compare them with the processes on it, and delete the pod whose claim is wrong",
        )
    if kind == "ecc_uncorrected":
        count = int(fault.value)
        errors = f"{count} error{'s' if count > 1 else ''}"
        return (
            "critical" if recent and fault.since_known else "warning",
            f"{where}: ECC could not correct {errors} of its memory since the driver was loaded",
            f"restart the programs that ran on it; {_DRAIN}; if it happens again, {_VENDOR}",
        )
    severity, text, advice = _TEXTS[kind]
    if kind in _PENDING and asked:
        return severity, f"{where}{text}, for which the driver asks", None
    if advice == _DRAIN and not held:
        advice = _FREE
    return severity, f"{where}{text}", advice
