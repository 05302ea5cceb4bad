"""What containers and processes use of a device, from the usage accounts of a snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pipeline.base.safe_text import line
from pipeline.model import (
    NS,
    ContainerUsage,
    Holder,
    Holding,
    Instant,
    PartialRef,
    Snapshot,
)
from pipeline.status_page.last_minute import BusyPart, BusyPoint, Key, busy_part
from pipeline.status_page.use_format import LARGEST, ProcessStatus, UserStatus, UseStatus

_LEAST_GAP_NS: Final = 60 * NS
_LEAST_GAP_PART: Final = 20
"""A gap makes the energy of a holding incomplete if it is longer than a minute, and than 1/20 of
the time with samples."""


class DeviceUses:
    """What containers use of one device now.

    Args:
        snapshot: the snapshot; None before the first.
        uuid: the device.
        oldest: a point about a minute ago of each container on a device.

    Attributes:
        memory_unattributed_bytes: memory that belongs to no known container; None if unknown.
    """

    def __init__(
        self, snapshot: Snapshot | None, uuid: str, oldest: Mapping[Key, BusyPoint]
    ) -> None:
        usage = None if snapshot is None else snapshot.usage
        account = None if usage is None else usage.devices.get(uuid)
        self.memory_unattributed_bytes = _count(
            None if account is None else account.memory_unattributed_bytes
        )
        self._uses: dict[PartialRef, UseStatus] = {}
        self._starts: dict[PartialRef, Instant] = {}
        for one in () if account is None else account.containers:
            if account is not None and one.ended is None:
                self._uses[one.subject] = _use(one, busy_part(account, one, oldest))
                if one.holding is not None:
                    self._starts[one.subject] = one.holding.start

    def of(self, subject: PartialRef) -> UseStatus | None:
        """Return the use of a container; None if it has no account."""
        return self._uses.get(_whole_name(subject))

    def start_of(self, subject: PartialRef) -> Instant | None:
        """Return since when a container has held or used the device; None if unknown.

        It can be earlier than the start of its claim: a claim that is replaced by one that begins
        later, without a pause, continues the holding.
        """
        return self._starts.get(_whole_name(subject))

    def without_holding(self, holders: Sequence[Holder]) -> tuple[UserStatus, ...]:
        """Return the containers that use the device and are not among its holders."""
        held = {_whole_name(one.subject) for one in holders}
        return tuple(
            UserStatus(**names(subject), use=use)
            for subject, use in self._uses.items()
            if subject not in held and (use.memory_used_bytes or use.busy_percent)
        )


def processes(snapshot: Snapshot | None, uuid: str) -> tuple[ProcessStatus, ...] | None:
    """Return the processes on a device, those with the most memory first; None if unknown."""
    found = None if snapshot is None else snapshot.processes.get(uuid)
    if found is None:
        return None
    ordered = sorted(found, key=lambda one: (-(one.memory_bytes or 0), one.pid))
    return tuple(
        ProcessStatus(
            pid=min(max(one.pid, 0), LARGEST),
            kind=one.kind,
            memory_used_bytes=_count(one.memory_bytes),
        )
        for one in ordered
    )


def names(subject: PartialRef) -> dict[str, str | None]:
    """Return the names of a container for a document."""
    return {
        name: text_or_none(getattr(subject, name))
        for name in ("namespace", "pod", "container", "uid")
    }


def text_or_none(text: str | None) -> str | None:
    """Return a text as one line; None if the text is empty or None."""
    return line(text) if text else None


def _whole_name(subject: PartialRef) -> PartialRef:
    """Return a name as usage accounts have it: a restarted container is the same container."""
    return replace(subject, container_id="")


def _use(one: ContainerUsage, busy: BusyPart | None) -> UseStatus:
    holding = one.holding
    energy = one.energy_mj if holding is None else holding.energy_mj
    return UseStatus(
        busy_percent=None if busy is None else busy.percent,
        busy_error_percent=None if busy is None else busy.error_percent,
        memory_used_bytes=_count(one.memory_bytes),
        energy_joules=None if energy is None else min(max(energy / 1e3, 0), LARGEST),
        incomplete=holding is not None and _is_incomplete(holding),
    )


def _is_incomplete(holding: Holding) -> bool:
    """Return whether a holding has more than a negligible time without usage samples."""
    return holding.gap_ns > max(_LEAST_GAP_NS, holding.counted_ns // _LEAST_GAP_PART)


def _count(number: int | None) -> int | None:
    return None if number is None else min(max(number, 0), LARGEST)
