"""A ledger with an archive, in steps that can be killed, and what both must contain.

The archive is a dictionary of objects. What must be in it is kept apart from the ledger, so that
the ledger's retention does not change it.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.ledger.archive_backlog import read_backlog
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.outbox import first_object, remove_object
from pipeline.ledger.retention import apply_retention, remove_orphans
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.sealing import seal
from pipeline.ledger.usage_delta import Amounts
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import Instant, PartialRef, PodInfo
from pipeline.model.ledger_usage import Gap
from tests.support.nodes import gpu
from tests.support.usage import holding

DEVICES = (gpu(0), gpu(1))
NOON = 500_000 - 500_000 % 24 + 12
"""The hour at which the world begins."""
Row = dict[str, Any]
Key = tuple[int, str, PartialRef | None]
Known = tuple[int, int | None, int | None]
"""Held time, busy time and energy."""
TextKey = tuple[str, str, PartialRef | None]
"""The hour as in the archive, the device and the container."""


class KilledError(Exception):
    """The process was killed."""


class Mortal(sqlite3.Connection):
    """A connection whose process is killed before one of its statements."""

    left = -1

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self.left -= 1
        if not self.left:
            raise KilledError
        return super().execute(*arguments)


def folded(amount: int | None, gain: int | None) -> int | None:
    """Return an amount of an hour after a gain: unknown if nothing but 0 was known before."""
    return (amount or None) if gain is None else (amount or 0) + gain


@dataclass
class World:
    """The ledger, the archive, and what was reported to the ledger so far."""

    path: Path
    now_ns: int = NOON * HOUR_NS
    latest_ns: int = NOON * HOUR_NS
    archive: dict[int, tuple[Row, ...]] = field(default_factory=dict)
    hours: dict[Key, Known] = field(default_factory=dict)
    contests: Counter[Key] = field(default_factory=Counter)
    """Contested time, of which a half is switching time."""
    gaps: dict[tuple[int, str], int] = field(default_factory=dict)
    ended: dict[str, tuple[int, int]] = field(default_factory=dict)
    """End and held time of each ended holding."""
    facts: dict[PartialRef, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Holdings that retention has removed from the ledger."""

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self.connection = open_readwrite(self.path, "normal")
        self.store = BatchWriter(self.connection)

    def close(self) -> None:
        self.connection.close()

    def usage(self, ago: int, pod: str, gain: Known, device: int = 0, gap: int = 0) -> None:
        """Add a gain of a pod, unattributed without a name, in an hour some hours ago."""
        hour, uuid = self.now_ns // HOUR_NS - ago, DEVICES[device].uuid
        who = subject_of(pod) if pod else None
        batch = self._batch()
        contested = 0 if who is None else 2 * (gain[1] or 0)
        contest = (None, None) if who is None else (contested, contested // 2)
        batch.add(hour, uuid, who, Amounts(*gain, *contest))
        self.contests[hour, uuid, who] += contested
        batch.gap_hours[hour, uuid] += gap
        self.store.write_batch(batch)
        held, busy, energy = self.hours.get((hour, uuid, who), (0, None, None))
        is_new = (hour, uuid, who) not in self.hours
        self.hours[hour, uuid, who] = (
            held + gain[0],
            gain[1] if is_new else folded(busy, gain[1]),
            gain[2] if is_new else folded(energy, gain[2]),
        )
        self.gaps[hour, uuid] = self.gaps.get((hour, uuid), 0) + gap

    def hold(self, name: str, minutes: int | None, held: int) -> None:
        """Write a holding that ended some minutes ago; None if it continues."""
        if name in self.gone:
            return
        until = self.now_ns - (minutes or 0) * 60 * 10**9
        own_id = f"holding-{name}"
        end = None if minutes is None else Instant(until, until)
        start = Instant(until - held, until - held)
        made = holding(name, DEVICES[0], start=start, end=end, held=held, own_id=own_id)
        batch = self._batch()
        batch.holdings[own_id] = HoldingRow(made, until - held, until)
        self.store.write_batch(batch)
        self.ended.pop(own_id, None)
        if end is not None:
            self.ended[own_id] = until, held

    def drop(self, name: str) -> None:
        """Merge a holding into another one."""
        if name not in self.gone:
            self.store.write_batch(Batch(dropped={f"holding-{name}"}, states={}))
            self.ended.pop(f"holding-{name}", None)

    def lose(self, name: str) -> None:
        """Close a holding that is no longer reported, at its last counted time."""
        own_id = f"holding-{name}"
        self.store.write_batch(Batch(closed={own_id}))
        query = "SELECT end_ns, held_ns FROM holdings WHERE id = ?"
        row = self.connection.execute(query, (own_id,)).fetchone()
        if row is not None:
            self.ended[own_id] = row

    def gap(self, name: str, minutes: int) -> None:
        """Write a gap that ended some minutes ago, or extend it."""
        until = self.now_ns - minutes * 60 * 10**9
        gap = Gap(DEVICES[0].uuid, until - HOUR_NS, until, "blind")
        self.store.write_batch(Batch(gaps={f"gap-{name}": gap}, devices=_DEVICES))

    def describe(self, pod: str, owner: str) -> None:
        """Report the workload of a pod."""
        info = PodInfo(f"u-{pod}", "ml", pod, owner_kind="Job", owner_name=owner)
        self.store.write_batch(Batch(pods={subject_of(pod): info}))
        self.facts[subject_of(pod)] = owner

    def wait(self, minutes: int) -> None:
        """Let time pass; negative if the wall clock is set back."""
        self.now_ns += minutes * 60 * 10**9
        self.latest_ns = max(self.latest_ns, self.now_ns)

    def retain(self, days: int, max_bytes: int = 1 << 40) -> int:
        """Remove what is older than some days; return the number of unsealed rows removed."""
        query = "SELECT id FROM holdings"
        before = set(self.connection.execute(query).fetchall())
        removed = apply_retention(self.connection, self.now_ns, days * 24 * HOUR_NS, max_bytes)
        remove_orphans(self.connection)
        self.store.clear_caches()
        after = set(self.connection.execute(query).fetchall())
        self.gone |= {own_id.removeprefix("holding-") for (own_id,) in before - after}
        if self.backlog() is None:
            # What was removed before there was an archive is not in it.
            kept = {hour for (hour,) in self.connection.execute("SELECT hour FROM device_hours")}
            self.hours = {key: value for key, value in self.hours.items() if key[0] in kept}
            self.gaps = {key: value for key, value in self.gaps.items() if key[0] in kept}
        return removed.unsealed

    def write(self, killed: int = 0) -> bool:
        """Seal and write until nothing is left; return whether the process was not killed.

        Args:
            killed: number of the step or statement before which it is killed; 0 for never.
        """
        uri = f"file:{self.path}?mode=rw"
        with closing(
            sqlite3.connect(uri, uri=True, isolation_level=None, factory=Mortal)
        ) as connection:
            connection.left = killed or -1
            try:
                while True:
                    while (found := first_object(connection)) is not None:
                        rows = tuple([dict(row) for row in found.rows])
                        # Written again, an object is the same.
                        assert self.archive.setdefault(found.first, rows) == rows
                        remove_object(connection, found)
                    if not seal(connection, "east", "node-1", self.now_ns):
                        return True
            except KilledError:
                return False

    def restart(self) -> None:
        """Kill the podgpu that writes the ledger, and start another one."""
        self.close()
        self._open()

    def backlog(self) -> int | None:
        """Return the number of rows that are not in the archive; None if there was never one."""
        found = read_backlog(self.connection, self.now_ns)
        return None if found is None else found.rows

    def rows(self) -> list[Row]:
        """Return all rows that have a serial: those of the archive, and those of the outbox."""
        found = {row["serial"]: row for rows in self.archive.values() for row in rows}
        while (pending := first_object(self.connection)) is not None:
            for row in pending.rows:
                assert found.setdefault(row["serial"], dict(row)) == row
            remove_object(self.connection, pending)
        assert sorted(found) == list(range(1, len(found) + 1)), "serials have holes"
        return [found[serial] for serial in sorted(found)]

    @staticmethod
    def _batch() -> Batch:
        return Batch(devices=_DEVICES)


_DEVICES = {device.uuid: device for device in DEVICES}


def subject_of(pod: str) -> PartialRef:
    return PartialRef("ml", pod, "main", f"u-{pod}")


def key_of(row: Row) -> TextKey:
    return row["hour"], row["device"], _subject(row)


def amounts_of(rows: Iterable[Row]) -> dict[TextKey, Known]:
    """Return the amounts of the rows `usage`, in the order of their serials."""
    found: dict[TextKey, Known] = {}
    for row in rows:
        if row["row"] != "usage":
            continue
        key = key_of(row)
        gain = row["held_ns"], row.get("busy_ns"), row.get("energy_mj")
        found[key] = gain if key not in found else _added(found[key], gain)
    return found


def _added(amounts: Known, gain: Known) -> Known:
    return amounts[0] + gain[0], folded(amounts[1], gain[1]), folded(amounts[2], gain[2])


def _subject(row: Mapping[str, Any]) -> PartialRef | None:
    if "namespace" not in row:
        return None
    return PartialRef(row["namespace"], row["pod"], row["container"], row["pod_uid"])


def device_sums(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, int]]:
    """Return the sums of the rows `device` by hour and device, without unknown ones."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        if row["row"] == "device":
            sums = found.setdefault((row["hour"], row["device"]), {})
            for name in ("accounted_ns", "gap_ns", "unknown_ns", "busy_ns", "energy_mj"):
                if name in row:
                    sums[name] = sums.get(name, 0) + row[name]
    return found


def valid_items(rows: Iterable[Row], item: str) -> dict[str, Row]:
    """Return the valid row of each holding or gap; without those that were withdrawn."""
    last = {row[item]: row for row in rows if row["row"] == item}
    return {own_id: row for own_id, row in last.items() if "end_ns" in row}


def valid_facts(rows: Iterable[Row]) -> dict[tuple[str, PartialRef | None], Row]:
    """Return the valid facts of each container by day."""
    return {(row["day"], _subject(row)): row for row in rows if row["row"] == "container"}
