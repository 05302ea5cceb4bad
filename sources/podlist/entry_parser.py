"""Read one entry of the pod list: a container and the GPUs that it holds."""

import re
import sys
from dataclasses import dataclass
from typing import Literal

from pipeline.base.safe_text import shortened
from pipeline.model import PartialRef, RawDeviceId
from pipeline.model.plugin_ids import UUID

_DIGITS = re.compile(r"[0-9]{1,9}")
# Kubernetes allows at most 253 characters, without spaces and control characters. Stricter rules
# are not needed, because the API server has checked the names. Surrogates are bytes that are not
# UTF-8.
_NAME = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,253}")
_LARGEST = (1 << 20) - 1  # Linux minor numbers have 20 bits
_DEVICE = "a GPU UUID, a MIG UUID or a number"
_MAX_DEVICES = 1024  # more than any node has; limits the time and memory that an invalid list takes
# podgpu wrote these entries from claims of its other sources. They must not confirm those claims.
_OURS = "podgpu"

Integers = Literal["minor", "index"]


@dataclass(frozen=True, slots=True)
class EntryProblem:
    """A problem of an entry.

    Attributes:
        key: key with the invalid value; empty if the whole entry is invalid.
        item: index of the invalid element if the value is a list; else None.
        text: what was expected, and what was found.
    """

    key: str
    item: int | None
    text: str

    @property
    def path(self) -> str:
        """Path from the entry to the value, such as `.gpu_list[0]`; follows the entry's index."""
        key = f".{self.key}" if self.key else ""
        return key if self.item is None else f"{key}[{self.item}]"


def read_entry(
    entry: object, integers: Integers, problems: list[EntryProblem]
) -> tuple[PartialRef, list[RawDeviceId]] | None:
    """Return the container of an entry and its devices; None if the entry cannot be used.

    None is returned if the entry has no complete name, because its container is unknown, and if
    podgpu wrote the entry. Invalid device ids are skipped.

    Args:
        entry: the parsed entry.
        integers: meaning of numbers in `gpu_list`.
        problems: list to which the problems of the entry are added.
    """
    if not isinstance(entry, dict):
        problems.append(EntryProblem("", None, _expected("an object", entry)))
        return None
    if entry.get("writer") == _OURS:
        return None
    names = [_name(entry, key, problems) for key in ("namespace", "name", "container")]
    devices = _devices(entry, integers, problems)
    if not all(names):
        return None
    # Thousands of containers share a few namespaces. Comparing interned strings is faster.
    namespace, pod, container = map(sys.intern, names)
    return PartialRef(namespace=namespace, pod=pod, container=container), devices


def _name(entry: dict[str, object], key: str, problems: list[EntryProblem]) -> str:
    value = entry.get(key)
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    problems.append(_at(entry, key, "a name"))
    return ""


def _devices(
    entry: dict[str, object], integers: Integers, problems: list[EntryProblem]
) -> list[RawDeviceId]:
    ids = entry.get("gpu_list")
    # Go encodes a nil slice as null.
    if ids is None and "gpu_list" in entry:
        return []
    if not isinstance(ids, list):
        problems.append(_at(entry, "gpu_list", "a list"))
        return []
    if len(ids) > _MAX_DEVICES:
        problems.append(_at(entry, "gpu_list", f"at most {_MAX_DEVICES} devices"))
        return []
    devices: list[RawDeviceId] = []
    for item, value in enumerate(ids):
        device = _device(value, integers)
        if device is None:
            problems.append(EntryProblem("gpu_list", item, _expected(_DEVICE, value)))
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
    # In Python, a boolean is an int.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return RawDeviceId(integers, str(value))
    return None


def _at(entry: dict[str, object], key: str, expected: str) -> EntryProblem:
    if key not in entry:
        return EntryProblem(key, None, f"expected {expected}, found nothing")
    return EntryProblem(key, None, _expected(expected, entry[key]))


def _expected(expected: str, found: object) -> str:
    return f"expected {expected}, found {_shown(found)}"


def _shown(value: object) -> str:
    """Format a JSON value for a message: on one line, and shortened."""
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
