"""Checks one entry of the list: a container and the GPUs that it holds."""

import re
import sys
from dataclasses import dataclass
from typing import Literal

from pipeline.base.safe_text import shortened
from pipeline.model import PartialRef, RawDeviceId
from pipeline.model.uuid_pattern import UUID

_DIGITS = re.compile(r"[0-9]{1,9}")
# Kubernetes allows 253 characters and never a space or a control character; the file's writer took
# the names from there, so that finer rules would only repeat the API server's. Surrogates stand for
# what isn't UTF-8.
_NAME = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,253}")
_LARGEST = (1 << 20) - 1  # Linux has 20 bits for a minor number
_DEVICE = "a GPU uuid, a MIG uuid or a number"
_MOST = 1024  # no node has that many; bounds the time and memory that a list of junk may take
# What podgpu wrote itself is what its sources said before: it must not confirm itself.
_OURS = "podgpu"

Integers = Literal["minor", "index"]


@dataclass(frozen=True, slots=True)
class EntryProblem:
    """What is wrong with an entry.

    Attributes:
        key: the key at fault; empty if it is the entry as a whole.
        item: the element of the key's list at fault, if it is one.
        present: the key is there, so that its place can be told.
        text: what was expected and what stands there.
    """

    key: str
    item: int | None
    present: bool
    text: str

    @property
    def path(self) -> str:
        """The way from the entry to the value, to follow the entry's number."""
        key = f".{self.key}" if self.key else ""
        return key if self.item is None else f"{key}[{self.item}]"


def read_entry(
    entry: object, integers: Integers, wrong: list[EntryProblem]
) -> tuple[PartialRef, list[RawDeviceId]] | None:
    """Return the container of an entry and its devices.

    Without a whole name there is no telling who holds the devices, and the entry yields nothing. A
    bad device id costs that device only. Entries that podgpu wrote yield nothing either.

    Args:
        entry: as parsed.
        integers: what a number in `gpu_list` is.
        wrong: takes what is wrong.
    """
    if not isinstance(entry, dict):
        wrong.append(EntryProblem("", None, False, _expected("an object", entry)))
        return None
    if entry.get("writer") == _OURS:
        return None
    names = [_name(entry, key, wrong) for key in ("namespace", "name", "container")]
    devices = _devices(entry, integers, wrong)
    if not all(names):
        return None
    # Thousands of containers share a few namespaces, and the same text as the same object is equal
    # at once.
    namespace, pod, container = map(sys.intern, names)
    return PartialRef(namespace=namespace, pod=pod, container=container), devices


def _name(entry: dict[str, object], key: str, wrong: list[EntryProblem]) -> str:
    value = entry.get(key)
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    wrong.append(_at(entry, key, "a name"))
    return ""


def _devices(
    entry: dict[str, object], integers: Integers, wrong: list[EntryProblem]
) -> list[RawDeviceId]:
    ids = entry.get("gpu_list")
    # Go writes an empty slice that was never made as null.
    if ids is None and "gpu_list" in entry:
        return []
    if not isinstance(ids, list):
        wrong.append(_at(entry, "gpu_list", "a list"))
        return []
    if len(ids) > _MOST:
        wrong.append(_at(entry, "gpu_list", f"{_MOST} devices at most"))
        return []
    devices: list[RawDeviceId] = []
    for item, value in enumerate(ids):
        device = _device(value, integers)
        if device is None:
            wrong.append(EntryProblem("gpu_list", item, True, _expected(_DEVICE, value)))
        else:
            devices.append(device)
    return devices


def _device(value: object, integers: Integers) -> RawDeviceId | None:
    if isinstance(value, str):
        if UUID.fullmatch(value):
            return RawDeviceId("uuid", value)
        if _DIGITS.fullmatch(value) and (number := int(value)) <= _LARGEST:
            return RawDeviceId(integers, str(number))
        return None
    # A boolean is an int to Python; it is not a number of a GPU.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return RawDeviceId(integers, str(value))
    return None


def _at(entry: dict[str, object], key: str, expected: str) -> EntryProblem:
    if key not in entry:
        return EntryProblem(key, None, False, f"expected {expected}, found nothing")
    return EntryProblem(key, None, True, _expected(expected, entry[key]))


def _expected(expected: str, found: object) -> str:
    return f"expected {expected}, found {_shown(found)}"


def _shown(value: object) -> str:
    """Return a JSON value for a message: on one line, of a readable length."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            safe = (c if c.isprintable() else ascii(c)[1:-1] for c in value)
            return f'"{shortened("".join(safe))}"'
        case int() | float():
            return shortened(repr(value))
        case dict():
            return "an object"
        case _:
            return "a list"
