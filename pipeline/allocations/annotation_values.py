"""What readers of annotations have in common."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from pipeline.base.safe_text import shortened
from pipeline.model import RawDeviceId
from pipeline.model.uuid_pattern import UUID

_NUMBER = re.compile(r"[0-9]{1,7}")
MOST = 1024
"""Devices of one annotation; no node has that many."""


class MalformedError(Exception):
    """An annotation's text is not what its scheduler writes."""


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Devices that are held in the same way.

    Attributes:
        devices: each once.
        container: who holds them; empty for the pod, where the scheduler doesn't say.
        share: part of each, in (0, 1]; None when the scheduler doesn't say.
        resource: what they were asked for as; empty when the annotation doesn't say.
    """

    devices: tuple[RawDeviceId, ...]
    container: str = ""
    share: float | None = None
    resource: str = ""


def raise_malformed(place: str, expected: str, found: object, at: int | None = None) -> NoReturn:
    """Refuse a value.

    Args:
        place: of the value in the annotation.
        expected: what has to be there.
        found: what is there.
        at: where in a text the fault is, if known.

    Raises:
        MalformedError: always.
    """
    try:
        shown = found if isinstance(found, str) else orjson.dumps(found, default=str).decode()
    except (TypeError, RecursionError):
        # It nests deeper than orjson writes, and orjson reads what nests deeper still.
        shown = "what nests too deep"
    raise MalformedError(f'{place}expected {expected}, found "{shortened(shown, at=at)}"')


def parsed(value: str) -> Any:
    """Return what a JSON text says.

    Raises:
        MalformedError: it is no JSON.
    """
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise_malformed("", "JSON", value, error.pos)


def uuid(value: str, place: str = "") -> RawDeviceId:
    """Return a GPU, a MIG instance or a replica of one by its uuid.

    Raises:
        MalformedError: it is none.
    """
    if not UUID.fullmatch(value):
        raise_malformed(place, "a uuid of a GPU or MIG instance", value)
    return RawDeviceId("uuid", value)


def whole(value: object, place: str = "") -> int:
    """Return a number from zero, written as a number or as a text.

    Raises:
        MalformedError: it is none, or one that no node reaches.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**7:
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    raise_malformed(place, "a number", value)


def group_by_share(
    devices: Iterable[tuple[RawDeviceId, float | None]], container: str = ""
) -> list[AllocatedDevices]:
    """Put devices together that are held with the same share.

    Raises:
        MalformedError: they are more than any node has.
    """
    shares: dict[float | None, dict[RawDeviceId, None]] = {}
    for count, (device, share) in enumerate(devices):
        if count >= MOST:
            raise MalformedError(f"more than {MOST} devices")
        shares.setdefault(share, {})[device] = None
    return [AllocatedDevices(tuple(found), container, share) for share, found in shares.items()]


def percent(value: int) -> float | None:
    """Return hundredths of a device as a share; None for none or more than all of it."""
    return value / 100 if 0 < value <= 100 else None
