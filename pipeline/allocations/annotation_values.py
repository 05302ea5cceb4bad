"""Parsing of values that several readers of annotations share."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from pipeline.base.safe_text import shortened
from pipeline.model import RawDeviceId
from pipeline.model.plugin_ids import UUID

_NUMBER = re.compile(r"[0-9]{1,7}")
MOST = 1024
"""Maximum number of devices in one annotation; no node has that many."""


class MalformedError(Exception):
    """The text of an annotation is not in its scheduler's format."""


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Devices that a container holds with the same share.

    Attributes:
        devices: the devices, each once.
        container: name of the container; empty for the whole pod, if the scheduler reports no
            container.
        share: the share of each device, above 0 and up to 1; None if the scheduler does not report
            it.
        resource: name of the requested resource; empty if the annotation does not contain it.
    """

    devices: tuple[RawDeviceId, ...]
    container: str = ""
    share: float | None = None
    resource: str = ""


def raise_malformed(place: str, expected: str, found: object, at: int | None = None) -> NoReturn:
    """Raise `MalformedError` for a value in an annotation.

    Args:
        place: position of the value in the annotation.
        expected: what is expected there.
        found: the value.
        at: position of the error in the value, if it is a text and the position is known.

    Raises:
        MalformedError: always.
    """
    try:
        shown = found if isinstance(found, str) else orjson.dumps(found, default=str).decode()
    except (TypeError, RecursionError):
        # orjson reads deeper nesting than it writes.
        shown = "a value that is nested too deeply"
    raise MalformedError(f'{place}expected {expected}, found "{shortened(shown, at=at)}"')


def parsed(value: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        MalformedError: the text is not JSON.
    """
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise_malformed("", "JSON", value, error.pos)


def as_object(value: Any, place: str = "") -> dict[str, Any]:
    """Return a value as a JSON object.

    Raises:
        MalformedError: the value is not an object.
    """
    if not isinstance(value, dict):
        raise_malformed(place, "an object", value)
    return value


def uuid(value: str, place: str = "") -> RawDeviceId:
    """Return the device id for the uuid of a GPU, a MIG instance or a replica.

    Raises:
        MalformedError: the text is not such a uuid.
    """
    if not UUID.fullmatch(value):
        raise_malformed(place, "a uuid of a GPU or MIG instance", value)
    return RawDeviceId("uuid", value)


def whole(value: object, place: str = "") -> int:
    """Return an integer from 0 to 9999999, written as a number or as a text.

    Raises:
        MalformedError: the value is not such an integer.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**7:
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    raise_malformed(place, "a number", value)


def group_by_share(
    devices: Iterable[tuple[RawDeviceId, float | None]], container: str = ""
) -> list[AllocatedDevices]:
    """Group devices by their share.

    Raises:
        MalformedError: there are more than `MOST` devices.
    """
    shares: dict[float | None, dict[RawDeviceId, None]] = {}
    for count, (device, share) in enumerate(devices):
        if count >= MOST:
            raise MalformedError(f"more than {MOST} devices")
        shares.setdefault(share, {})[device] = None
    return [AllocatedDevices(tuple(found), container, share) for share, found in shares.items()]


def percent(value: int) -> float | None:
    """Return hundredths of a device as a share; None for 0 or less, and for more than 100."""
    return value / 100 if 0 < value <= 100 else None
