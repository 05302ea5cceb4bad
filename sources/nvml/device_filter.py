"""The option `devices`: which devices are read.

The syntax is dcgm-exporter's. This module imports nothing of podgpu, since it checks options before
other modules are loaded.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

Ids: TypeAlias = tuple[int, ...] | None
"""Numbers of devices, ascending. An empty tuple means all devices, None means no device."""

MAX_ID: Final = 4095

_ALL: Final = "all"
_FLEXIBLE: Final = "f"
_GPUS: Final = "g"
_INSTANCES: Final = "i"
_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_USE: Final = "write all, f, g, i, g:0,2-3, i:0,2-4, or g and i joined by +"


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """The devices that are read.

    Attributes:
        flexible: whether the option is `f`: fields that MIG instances have are read of the
            instances of a GPU that has instances; all other fields are read of the GPU.
        gpus: numbers of the GPUs, unless `flexible`.
        instances: numbers of the MIG instances, unless `flexible`; see `instance_numbers`.
    """

    flexible: bool = False
    gpus: Ids = ()
    instances: Ids = ()

    @classmethod
    def parse(cls, text: str) -> "DeviceFilter":
        """Parse `all`, `f`, `g`, `g:0,2-3`, `i`, `i:0,2-4`, or one of g and one of i joined by +.

        Raises:
            ValueError: the text is invalid; the message says why and what to write.
        """
        if text == _ALL:
            return cls()
        if text == _FLEXIBLE:
            return cls(True, None, None)
        found: dict[str, Ids] = {}
        for part in text.split("+"):
            letter, colon, ids = part.partition(":")
            if letter == _FLEXIBLE:
                wrong = "takes no numbers" if colon else "cannot be combined"
                raise ValueError(f"{text!r}: f {wrong}; {_USE}")
            if letter not in (_GPUS, _INSTANCES):
                raise ValueError(f"{text!r} does not select devices; {_USE}")
            if letter in found:
                raise ValueError(f"{text!r} has {letter} twice; write the numbers in one list")
            found[letter] = _ids(text, ids) if colon else ()
        return cls(False, found.get(_GPUS), found.get(_INSTANCES))

    def has_gpu(self, index: int | None) -> bool:
        """Return whether a GPU itself is read.

        Args:
            index: index of the GPU; None if it is unknown.
        """
        return self.flexible or _among(index, self.gpus)

    def has_instance(self, number: int) -> bool:
        """Return whether the MIG instance with this number is read."""
        return self.flexible or _among(number, self.instances)

    def conflict_with_node(
        self, count: int, instances: Iterable[int], *, any_mig: bool | None
    ) -> str:
        """Return why devices of this filter do not exist on this node; empty if all exist.

        Args:
            count: number of GPUs.
            instances: numbers of the present MIG instances.
            any_mig: whether a GPU has MIG mode on; None if this is unknown. Then there may be more
                instances, and no missing instance is reported.
        """
        if not self.flexible:
            for index in self.gpus or ():
                if index >= count:
                    return f"there is no GPU {index}: {_there_are(range(count), 'GPU')}"
            if self.instances is not None and self != EVERYTHING and any_mig is False:
                return "i is for MIG instances, and no GPU has MIG mode on; write f or g"
            numbers = sorted(set(instances))
            for number in self.instances or ():
                if number not in numbers and any_mig is not None:
                    return (
                        f"there is no MIG instance {number}: {_there_are(numbers, 'MIG instance')}"
                    )
        return ""


EVERYTHING: Final = DeviceFilter()


def instance_numbers(
    index: int, max_instances: int, instances: Sequence[tuple[int, str]]
) -> dict[int, int]:
    """Return the number of each GPU instance of a GPU, as DCGM assigns it.

    The numbers of a GPU start at `index * max_instances`. They are assigned to its GPU instances by
    size, then by id; profiles with extras are last. For instances of one size, this is DCGM's order
    if NVML lists them by id.

    Args:
        index: index of the GPU.
        max_instances: maximum number of MIG devices of the GPU.
        instances: id and profile, such as `1g.10gb`, of each GPU instance; may contain duplicates.

    Returns:
        The numbers by GPU instance id.
    """
    ordered = sorted({(*_size(profile), gi) for gi, profile in instances})
    return {gi: index * max_instances + place for place, (*_, gi) in enumerate(ordered)}


def _size(profile: str) -> tuple[bool, int]:
    """Return the sort key of a profile in NVML's order: profiles with extras are last."""
    found = re.search(r"([0-9]+)g\.", profile)
    return "+" in profile, int(found[1]) if found else 0


def _among(number: int | None, ids: Ids) -> bool:
    return ids is not None and (not ids or number in ids)


def _ids(text: str, listed: str) -> tuple[int, ...]:
    ids: set[int] = set()
    for part in listed.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            what = f"{part!r} is not a number" if part else "a number is missing"
            raise ValueError(f"{text!r}: {what}; write for example g:0,2-3")
        first, last = int(found[1]), int(found[2] or found[1])
        if first > last:
            raise ValueError(f"{text!r}: {part} is descending; write {last}-{first}")
        if last > MAX_ID:
            raise ValueError(f"{text!r}: {last} is too high; the highest number is {MAX_ID}")
        ids.update(range(first, last + 1))
    return tuple(sorted(ids))


def _ranges(ids: Sequence[int]) -> str:
    """Format numbers, with consecutive ones as ranges."""
    runs = (
        [number for _, number in run]
        for _, run in groupby(enumerate(ids), lambda pair: pair[1] - pair[0])
    )
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _there_are(numbers: Sequence[int], noun: str) -> str:
    if not numbers:
        return f"there are no {noun}s"
    return f"the {noun}s are {_ranges(numbers)}"
