"""Choice of one GPU, or of one MIG instance, for a report."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.ledger.reports.groups import device_names
from pipeline.model.ledger_usage import DeviceTotal, UsageWindow

_INDEX: Final = re.compile(r"(?:gpu ?)?([0-9]{1,6})", re.IGNORECASE)
_MOST_LISTED: Final = 64


class DeviceChoiceError(ValueError):
    """No device, or devices of several GPUs, have the name. The message lists the known devices."""


def choose_device(window: UsageWindow, text: str) -> UsageWindow:
    """Return the usage of one GPU with its MIG instances, or of one MIG instance.

    Args:
        window: the usage of all devices.
        text: the index of a GPU (`1` or `GPU 1`), the name of a device in reports, its model, or
            the first characters of its uuid.

    Raises:
        DeviceChoiceError: the name fits no device, or devices of several GPUs.
    """
    chosen = _matching(window.totals, text.strip())
    known = _known(window, by_index=bool(_INDEX.fullmatch(text.strip())))
    if not chosen:
        raise DeviceChoiceError(f"no device {text!r} has usage in this time; {known}")
    if len({one.gpu or one.device for one in chosen}) > 1:
        raise DeviceChoiceError(f"{text!r} fits several GPUs: give an index or a UUID; {known}")
    uuids = {one.device for one in chosen}
    return replace(
        window,
        totals=tuple([one for one in window.totals if one.device in uuids]),
        usage=tuple([one for one in window.usage if one.device in uuids]),
        gaps=tuple([one for one in window.gaps if one.device in uuids]),
    )


def _matching(totals: Sequence[DeviceTotal], text: str) -> list[DeviceTotal]:
    if index := _INDEX.fullmatch(text):
        return [one for one in totals if one.index == int(index[1])]
    lower, names = text.lower(), device_names(totals)
    starts = lower, f"gpu-{lower}", f"mig-{lower}"
    found = [one for one in totals if lower in (names[one.device].lower(), one.name.lower())]
    found = found or [
        one
        for one in totals
        if lower and (one.device.lower().startswith(starts) or one.gpu.lower().startswith(starts))
    ]
    # A GPU with MIG instances has only energy itself.
    uuids = {one.device for one in found}
    return [one for one in totals if one.device in uuids or one.gpu in uuids]


def _known(window: UsageWindow, *, by_index: bool) -> str:
    names = device_names(window.totals)
    listed = [name if uuid in name else f"{name} ({uuid})" for uuid, name in names.items()]
    more = len(listed) - _MOST_LISTED
    text = ", ".join(listed[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
    hint = ""
    if by_index and any(one.index is None for one in window.totals):
        hint = (
            ". Some of them have no index in the ledger: podgpu stores the index when it writes "
            "to the ledger the next time. Give the first characters of the UUID"
        )
    return f"the devices are: {text or 'none'}{hint}"
