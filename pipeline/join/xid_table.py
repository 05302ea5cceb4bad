"""Recent XID errors with their devices and affected containers; merges reports of two sources."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pipeline.join.mig_placement import MigPlacements
from pipeline.join.process_owners import ProcessOwners
from pipeline.model import (
    NS,
    Attribution,
    Instant,
    PartialRef,
    XidError,
    XidReport,
    XidVictim,
)
from pipeline.usage import ContainerName, UsageAccounts

RETENTION_NS: Final = 300 * NS
"""How long an error is in the snapshots."""

MAX_ERRORS: Final = 256
"""How many errors are kept; beyond that the oldest are removed."""

DEDUPLICATION_NS: Final = 5 * NS
"""How far apart in time the reports of two sources about one error may be."""

MAX_UNKNOWN_DEVICES: Final = 64
"""How many unknown devices are counted separately."""

_BUS: Final = re.compile(
    r"(?:pci:)?(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.[0-7])?", re.IGNORECASE
)


@dataclass(slots=True)
class _RecentError:
    """An error in the table.

    Attributes:
        error: the error as it is shown.
        gpu: uuid of the GPU that had the error, or that has the MIG instance.
        sources: the sources that reported the error.
        first_reported_ns: when the first of these sources reported it.
    """

    error: XidError
    gpu: str
    sources: set[str]
    first_reported_ns: int


class XidTable:
    """The XID errors of the last minutes.

    Attributes:
        unknown_devices: number of errors of unknown devices, by the id that the source wrote. These
            errors are shown nowhere else. Ids beyond `MAX_UNKNOWN_DEVICES` count under `others`.

    Args:
        accounts: the usage accounts. They know the containers that held or used a device, and count
            the XID errors of each.
        owners: finds the container that a process belongs to.
    """

    def __init__(self, accounts: UsageAccounts, owners: ProcessOwners) -> None:
        self.unknown_devices: Counter[str] = Counter()
        self._accounts = accounts
        self._owners = owners
        self._recent: deque[_RecentError] = deque()
        self._serial = 0
        self._shown: tuple[XidError, ...] | None = ()

    @property
    def errors(self) -> tuple[XidError, ...]:
        """The errors, by serial; the same object as long as they do not change."""
        if self._shown is None:
            self._shown = tuple([known.error for known in self._recent])
        return self._shown

    def add_reports(
        self,
        source: str,
        reports: Iterable[XidReport],
        now: Instant,
        attributions: Mapping[str, Attribution],
        placements: MigPlacements,
    ) -> bool:
        """Add the reports of a source; return whether one is a new error or adds information.

        Args:
            source: name of the source.
            reports: the reports.
            now: the present time; a later time of an error is replaced by it.
            attributions: the attributions of the known devices, by uuid.
            placements: the MIG instances among these devices.
        """
        changed = False
        for report in reports:
            device = _find(report, attributions, placements)
            if device is None:
                self._count_unknown_device(report)
                continue
            mig = attributions[device].device.mig
            moment = min(report.at, now)
            gpu = device if mig is None else mig.parent_uuid
            before = self._find_duplicate(source, gpu, device, report.code, moment)
            if before is None:
                error = self._error(device, report, moment)
                if len(self._recent) >= MAX_ERRORS:
                    self._recent.popleft()
                self._recent.append(_RecentError(error, gpu, {source}, now.mono_ns))
                changed = True
            elif self._merge(before, source, device, report):
                changed = True
        if changed:
            self._shown = None
        return changed

    def expire(self, now_ns: int) -> bool:
        """Remove errors that were reported more than `RETENTION_NS` ago.

        Returns:
            Whether there were any.
        """
        known, before = self._recent, len(self._recent)
        while known and now_ns - known[0].first_reported_ns > RETENTION_NS:
            known.popleft()
        if len(known) == before:
            return False
        self._shown = None
        return True

    def _count_unknown_device(self, report: XidReport) -> None:
        device_id = (report.device or report.pci_bus_id)[:64]
        is_separate = (
            device_id in self.unknown_devices or len(self.unknown_devices) < MAX_UNKNOWN_DEVICES
        )
        self.unknown_devices[device_id if is_separate else "others"] += 1

    def _find_duplicate(
        self, source: str, gpu: str, device: str, code: int, moment: Instant
    ) -> _RecentError | None:
        """Return the error that other sources have reported already, nearest in time; else None."""
        candidates = [
            known
            for known in self._recent
            if known.error.code == code
            and known.gpu == gpu
            and source not in known.sources
            and (gpu in (device, known.error.device) or device == known.error.device)
        ]

        def apart_ns(known: _RecentError) -> int:
            return abs(known.error.at.mono_ns - moment.mono_ns)

        nearest = min(candidates, key=apart_ns, default=None)
        return nearest if nearest and apart_ns(nearest) <= DEDUPLICATION_NS else None

    def _error(self, device: str, report: XidReport, moment: Instant) -> XidError:
        affected = self._accounts.affected_by_xid(device, moment.mono_ns)
        victims = tuple(sorted(self._with_cause(affected, device, report), key=_order))
        self._serial += 1
        error = XidError(
            self._serial, device, report.code, moment, victims, report.pid, report.process
        )
        self._count(error, error.victims)
        return error

    def _merge(self, known: _RecentError, source: str, device: str, report: XidReport) -> bool:
        """Add what another source knows of an error; return whether that changes it."""
        known.sources.add(source)
        error = before = known.error
        if device not in (known.gpu, error.device):
            # Now the MIG instance is known. What was counted for other instances stays counted.
            affected = tuple(one for one in error.victims if one.device in (device, known.gpu))
            error = replace(error, device=device, victims=affected)
        if error.pid is None and report.pid is not None:
            error = replace(error, pid=report.pid, process=report.process)
        victims = self._with_cause(error.victims, error.device, report)
        added = victims[len(error.victims) :]
        error = replace(error, victims=tuple(sorted(victims, key=_order)))
        if error == before:
            return False
        self._count(error, added)
        known.error = replace(error, revision=before.revision + 1)
        return True

    def _with_cause(
        self, victims: Iterable[XidVictim], device: str, report: XidReport
    ) -> list[XidVictim]:
        """Return the victims, with the one that caused the error marked; if added, it is last."""
        found = list(victims)
        owner = report.owner
        if owner is None or not (owner.uid or owner.container_id):
            return found
        container, pod = self._owners.find(owner)
        if container is None:
            return found
        names = [_name(one.subject) for one in found]
        positions = [position for position, name in enumerate(names) if name == container]
        if not positions and not container[2]:
            # The container of the pod is unknown: take it if the pod has only one.
            of_pod = {name for name in names if name[3] == container[3]}
            positions = [position for position, name in enumerate(names) if of_pod == {name}]
        for position in positions:
            found[position] = replace(found[position], caused=True)
        if not positions:
            # Only the kernel log shows that this container uses the device.
            subject = PartialRef(*container)
            found.append(XidVictim(subject, pod, device, holds=False, uses=True, caused=True))
        return found

    def _count(self, error: XidError, victims: Iterable[XidVictim]) -> None:
        for one in victims:
            name = _name(one.subject)
            self._accounts.count_xid(one.device, name, error.code, error.at.mono_ns)


def _name(subject: PartialRef) -> ContainerName:
    return (subject.namespace, subject.pod, subject.container, subject.uid)


def _order(victim: XidVictim) -> tuple[ContainerName, str]:
    return _name(victim.subject), victim.device


def _find(
    report: XidReport, attributions: Mapping[str, Attribution], placements: MigPlacements
) -> str | None:
    """Return the uuid of the device that a report means; None if it is unknown."""
    if report.device:
        uuid = placements.canonical_uuid(report.device)
        if uuid in attributions:
            return uuid
        return next((one for one in attributions if one.lower() == uuid.lower()), None)
    bus = _bus(report.pci_bus_id)
    if bus is None:
        return None
    found: str | None = None
    for uuid, known in attributions.items():
        device = known.device
        if device.mig is None and _bus(device.pci_bus_id) == bus:
            if known.present:
                return uuid
            found = uuid
    return found


def _bus(text: str) -> tuple[int, int, int] | None:
    """Return PCI domain, bus and device from any spelling, such as `PCI:0000:3b:00`."""
    match = _BUS.fullmatch(text.strip())
    if match is None:
        return None
    return int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16)
