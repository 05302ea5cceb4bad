"""Which devices are read: the words of the option `devices`, and what they mean on a node.

The words are dcgm-exporter's. This module stands on nothing: the options are checked by it before
anything is loaded.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

Ids: TypeAlias = tuple[int, ...] | None
"""Ascending numbers; none of them for all there are; None for nothing at all."""

MAX_ID: Final = 4095

_ALL: Final = "all"
_FLEXIBLE: Final = "f"
_GPUS: Final = "g"
_INSTANCES: Final = "i"
_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_USE: Final = "write all, f, g, i, g:0,2-3, i:0,2-4, or g and i with a + between them"


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """What was chosen.

    Attributes:
        flexible: everything once: what MIG instances give is read of them, all else of the GPUs.
        gpus: numbers of the GPUs, unless it is flexible.
        instances: numbers of the MIG instances, likewise; see `instance_numbers`.
    """

    flexible: bool = False
    gpus: Ids = ()
    instances: Ids = ()

    @classmethod
    def parse(cls, text: str) -> "DeviceFilter":
        """Read `all`, `f`, `g`, `g:0,2-3`, `i`, `i:0,2-4`, or one of g and one of i joined by +.

        Raises:
            ValueError: the text is none of that; the message says what and names the mend.
        """
        if text == _ALL:
            return cls()
        if text == _FLEXIBLE:
            return cls(True, None, None)
        found: dict[str, Ids] = {}
        for part in text.split("+"):
            letter, colon, ids = part.partition(":")
            if letter == _FLEXIBLE:
                wrong = "takes no numbers" if colon else "stands alone"
                raise ValueError(f"{text!r}: f {wrong}; {_USE}")
            if letter not in (_GPUS, _INSTANCES):
                raise ValueError(f"{text!r} names no devices; {_USE}")
            if letter in found:
                raise ValueError(f"{text!r} has {letter} twice; put the numbers in one list")
            found[letter] = _ids(text, ids) if colon else ()
        return cls(False, found.get(_GPUS), found.get(_INSTANCES))

    def __str__(self) -> str:
        """Return the shortest text that is read as this."""
        if self.flexible:
            return _FLEXIBLE
        if self.gpus == () == self.instances:
            return _ALL
        named = ((_GPUS, self.gpus), (_INSTANCES, self.instances))
        return "+".join(
            f"{letter}:{_ranges(ids)}" if ids else letter
            for letter, ids in named
            if ids is not None
        )

    def has_gpu(self, index: int | None) -> bool:
        """Whether a GPU is read itself.

        Args:
            index: its index.
        """
        return self.flexible or _among(index, self.gpus)

    def has_instance(self, number: int) -> bool:
        """Whether the MIG instance of that number is read."""
        return self.flexible or _among(number, self.instances)

    def conflict_with_node(
        self, count: int, instances: Iterable[int], *, any_mig: bool | None
    ) -> str:
        """Say why these devices can't be had on this node; empty if they can.

        Args:
            count: how many GPUs there are.
            instances: numbers of the MIG instances there are.
            any_mig: whether MIG mode is on in some GPU; None if that can't be told, and neither
                whether there are more instances.
        """
        if not self.flexible:
            for index in self.gpus or ():
                if index >= count:
                    return f"there is no GPU {index}: {_there_are(range(count), 'GPU')}"
            if self.instances is not None and str(self) != _ALL and any_mig is False:
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
    """Return the number of each GPU instance of a GPU, as DCGM would number it.

    A GPU has as many numbers as it can have MIG devices, from its index times that on. They go to
    its GPU instances by size, then by id; those of one size are in DCGM's order as far as NVML
    lists them by id.

    Args:
        index: of the GPU.
        max_instances: how many MIG devices it can have.
        instances: GPU instance id and profile, such as `1g.10gb`; one may stand there repeatedly.

    Returns:
        The numbers by GPU instance id.
    """
    ordered = sorted({(*_size(profile), gi) for gi, profile in instances})
    return {gi: index * max_instances + place for place, (*_, gi) in enumerate(ordered)}


def _size(profile: str) -> tuple[bool, int]:
    """Order profiles as NVML numbers them: those with extras last."""
    found = re.search(r"([0-9]+)g\.", profile)
    return "+" in profile, int(found[1]) if found else 0


def _among(number: int | None, ids: Ids) -> bool:
    return ids is not None and (not ids or number in ids)


def _ids(text: str, listed: str) -> tuple[int, ...]:
    ids: set[int] = set()
    for part in listed.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            what = f"{part!r} is no number" if part else "a number is missing"
            raise ValueError(f"{text!r}: {what}; write for example g:0,2-3")
        first, last = int(found[1]), int(found[2] or found[1])
        if first > last:
            raise ValueError(f"{text!r}: {part} runs backwards; write {last}-{first}")
        if last > MAX_ID:
            raise ValueError(f"{text!r}: {last} is too high; the highest number is {MAX_ID}")
        ids.update(range(first, last + 1))
    return tuple(sorted(ids))


def _ranges(ids: Sequence[int]) -> str:
    """Write numbers that follow each other as ranges."""
    runs = (
        [number for _, number in run]
        for _, run in groupby(enumerate(ids), lambda pair: pair[1] - pair[0])
    )
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _there_are(numbers: Sequence[int], noun: str) -> str:
    if not numbers:
        return f"there are no {noun}s"
    return f"the {noun}s are {_ranges(numbers)}"
