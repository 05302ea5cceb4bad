"""The latest reading of each series, by source."""

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import Final, NamedTuple

from pipeline.fields import CATALOGUE
from pipeline.join.mig_placement import MigPlacements
from pipeline.model import Attrs, Device, GpuProcess, Instant, ProcessList, Reading

_FIELD_ORDER: Mapping[str, int] = {field.name: at for at, field in enumerate(CATALOGUE)}
_COUNTERS: Final = frozenset(field.name for field in CATALOGUE if field.type == "counter")
_PROCESS_MEMORY = "process_memory_used_bytes"

_NEVER = 1 << 63

MAX_PROCESS_SERIES: Final = 256
"""How many processes of a device have series: those that use the most memory."""


class SeriesKey(NamedTuple):
    """A series of one source. The device is the source's name for it, which may be a placement."""

    source: str
    device: str
    field: str
    attrs: Attrs


class ReadingTable:
    """Readings by source, device, field and attributes, each until it expires.

    If two sources read the same field of a device, only the readings of the source that is earlier
    in the configuration are shown, as long as it has valid ones.

    Attributes:
        layout_changed: whether a series came, went or changed its source since the last call of
            `keys`.
        fresh: keys of the series that were read since the owner of the table last cleared this set.
        starts: since when each counter has counted without a reset, as far as known.
        starts_changed: whether a start has changed since the owner last cleared this flag.
    """

    def __init__(self) -> None:
        self._latest: dict[SeriesKey, Reading] = {}
        # By source and device, the latest process list, and its series with their values.
        self._processes: dict[
            tuple[str, str], tuple[ProcessList, tuple[tuple[SeriesKey, int], ...]]
        ] = {}
        self._scan_at_ns = _NEVER
        self.layout_changed = True
        self.fresh: set[SeriesKey] = set()
        self.starts: dict[SeriesKey, Instant] = {}
        self.starts_changed = False

    def __getitem__(self, key: SeriesKey) -> Reading:
        return self._latest[key]

    def update(self, source: str, readings: Iterable[Reading]) -> None:
        """Record new readings. Fields that are not in the catalogue are ignored."""
        latest, fresh, first_end = self._latest, self.fresh, self._scan_at_ns
        for reading in readings:
            key = SeriesKey(source, reading.device, reading.field, reading.attrs)
            before = latest.get(key)
            if before is None:
                if reading.field not in _FIELD_ORDER:
                    continue
                self.layout_changed = True
                if reading.field in _COUNTERS:
                    self._start(key, reading)
            elif reading.value < before.value and reading.field in _COUNTERS:
                self._start(key, reading)
            # Faster than min(), and this runs for every reading.
            end = reading.at.mono_ns + reading.good_for_ns
            if end < first_end:  # noqa: PLR1730
                first_end = end
            latest[key] = reading
            fresh.add(key)
        self._scan_at_ns = first_end

    def _start(self, key: SeriesKey, reading: Reading) -> None:
        """Record since when a counter counts: as reported, else from this reading on."""
        self.starts[key] = reading.window_start or reading.at
        self.starts_changed = True

    def update_processes(self, source: str, lists: Iterable[ProcessList]) -> None:
        """Replace the process lists of these devices; a process that is gone has no series.

        If a list has the same tuple of processes as before, only its time is updated.
        """
        for found in lists:
            place = (source, found.device)
            before, series = self._processes.get(place, (None, ()))
            if before is None or before.processes is not found.processes:
                keys_before = {key for key, _ in series}
                series = _series(source, found)
                self._drop(keys_before.difference(key for key, _ in series))
            self._processes[place] = (found, series)
            self._scan_at_ns = min(self._scan_at_ns, _expires_ns(found))
            at, good_for_ns = found.at, found.good_for_ns
            self.update(
                source,
                [
                    Reading(key.device, key.field, key.attrs, used, None, at, good_for_ns)
                    for key, used in series
                ],
            )

    def processes(
        self, ranking: Iterable[str], placements: MigPlacements
    ) -> dict[str, tuple[GpuProcess, ...]]:
        """Return each device's processes, from the first source in `ranking` that has a list."""
        chosen: dict[str, tuple[GpuProcess, ...]] = {}
        for wanted in ranking:
            for (source, device), (listed, _) in self._processes.items():
                if source == wanted:
                    chosen.setdefault(placements.canonical_uuid(device), listed.processes)
        return chosen

    def expire(self, now_ns: int) -> bool:
        """Remove expired readings and process lists; return whether there were any."""
        if now_ns <= self._scan_at_ns:
            return False
        stale = {key for key, reading in self._latest.items() if _expires_ns(reading) < now_ns}
        stale_lists = [
            at for at, (listed, _) in self._processes.items() if _expires_ns(listed) < now_ns
        ]
        for at in stale_lists:
            del self._processes[at]
        self._drop(stale)
        ends = [_expires_ns(reading) for reading in self._latest.values()]
        ends += [_expires_ns(listed) for listed, _ in self._processes.values()]
        self._scan_at_ns = min(ends, default=_NEVER)
        return bool(stale or stale_lists)

    def remove(self, source: str) -> None:
        """Remove all readings and process lists of a source."""
        self._remove_where(lambda of, _: of == source)

    def drop_moved_instances(self, before: MigPlacements, after: MigPlacements) -> None:
        """Remove readings of placements that now belong to another MIG instance, or to none.

        Placements are reused: an earlier reading does not belong to the new instance.
        """
        names = {key.device for key in self._latest} | {device for _, device in self._processes}
        gone = {
            name
            for name in names
            if before.canonical_uuid(name) not in (name, after.canonical_uuid(name))
        }
        if gone:
            self._remove_where(lambda _, device: device in gone)

    def _remove_where(self, is_gone: Callable[[str, str], bool]) -> None:
        """Remove the readings and process lists of a source and device that `is_gone`."""
        for at in [at for at in self._processes if is_gone(*at)]:
            del self._processes[at]
        self._drop([key for key in self._latest if is_gone(key.source, key.device)])

    def keys(
        self, devices: Mapping[str, Device], ranking: list[str], placements: MigPlacements
    ) -> list[SeriesKey]:
        """Return the keys of the series to show, by field, then device, then attributes.

        This clears `layout_changed`.
        """
        self.layout_changed = False
        rank = {source: at for at, source in enumerate(ranking)}
        found = {key.device: placements.canonical_uuid(key.device) for key in self._latest}
        # If a source has two names for a device, its uuid has precedence over a placement.
        winner: dict[tuple[str, str], tuple[int, bool, str, str]] = {}
        for key in self._latest:
            device, name, source = found[key.device], key.device, key.source
            slot = (device, key.field)
            candidate = (rank.get(source, 1 << 30), device != name, source, name)
            best = winner.get(slot)
            if best is None or candidate < best:
                winner[slot] = candidate
        position = {uuid: at for at, uuid in enumerate(devices)}
        chosen = [
            key
            for key in self._latest
            if (device := found[key.device]) in position
            and winner[device, key.field][2:] == (key.source, key.device)
        ]
        chosen.sort(
            key=lambda key: (
                _FIELD_ORDER[key.field],
                position[found[key.device]],
                _by_numeric_value(key),
            )
        )
        return chosen

    def _drop(self, keys: Iterable[SeriesKey]) -> None:
        for key in keys:
            if self._latest.pop(key, None) is not None:
                self.layout_changed = True
                self.fresh.discard(key)
                self.starts.pop(key, None)


def _expires_ns(found: Reading | ProcessList) -> int:
    """Return the last moment at which a reading or list is valid, by the monotonic clock."""
    return found.at.mono_ns + found.good_for_ns


def _by_numeric_value(key: SeriesKey) -> list[tuple[int, str]]:
    """Return a sort key by which numbers in attributes are sorted by value: XID 13 before 119."""
    return [(len(value), value) for _, value in key.attrs]


def _series(source: str, found: ProcessList) -> tuple[tuple[SeriesKey, int], ...]:
    """Return key and bytes of each process with a series, those with the most memory first."""
    known = [
        (-used, process.pid, process.kind)
        for process in found.processes
        if (used := process.memory_bytes) is not None
    ]
    return tuple(
        (
            SeriesKey(source, found.device, _PROCESS_MEMORY, (("kind", kind), ("pid", str(pid)))),
            -less,
        )
        for less, pid, kind in nsmallest(MAX_PROCESS_SERIES, known)
    )
