"""Writing of batches to the ledger file. All functions block."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from pipeline.ledger.account_state import dump
from pipeline.ledger.gpu_indexes import write_gpu_index
from pipeline.ledger.late_changes import mark_changed, mark_changed_pod, sealed_before
from pipeline.ledger.schema import START_KEY, UNATTRIBUTED_ID, transaction
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.model import PartialRef, PodInfo

LABELS_BYTES: Final = 4096
"""Maximum size of a container's labels as JSON. Further labels are omitted and counted."""

_MAX_CACHED_IDS: Final = 8192
"""Maximum number of cached ids of devices and containers."""

_MAX_NUMBER: Final = 1 << 62
"""Limit of numbers in the file, so that the sum of two fits in SQLite's 64 bits."""

_Row: TypeAlias = tuple[int | str | None, ...]

_BEGIN: Final = """
INSERT OR REPLACE INTO meta SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM device_hours)
"""
_ADD_HOUR: Final = """
INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    held_ns = held_ns + excluded.held_ns,
    busy_ns = CASE WHEN excluded.busy_ns IS NULL THEN nullif(busy_ns, 0)
        ELSE ifnull(busy_ns, 0) + excluded.busy_ns END,
    energy_mj = CASE WHEN excluded.energy_mj IS NULL THEN nullif(energy_mj, 0)
        ELSE ifnull(energy_mj, 0) + excluded.energy_mj END,
    contested_ns = contested_ns + excluded.contested_ns,
    switching_ns = switching_ns + excluded.switching_ns
"""
_ADD_DEVICE_HOUR: Final = """
INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    accounted_ns = accounted_ns + excluded.accounted_ns,
    gap_ns = gap_ns + excluded.gap_ns,
    unknown_ns = ifnull(unknown_ns, 0) + excluded.unknown_ns,
    busy_ns = ifnull(busy_ns + excluded.busy_ns, ifnull(busy_ns, excluded.busy_ns)),
    energy_mj = ifnull(energy_mj + excluded.energy_mj, ifnull(energy_mj, excluded.energy_mj))
"""
_PUT_HOLDING: Final = (
    "INSERT OR REPLACE INTO holdings "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_NEW_DEVICE: Final = (
    "INSERT INTO devices (uuid, model, profile, gpu) VALUES (?, '', '', '') ON CONFLICT DO NOTHING"
)
_NEW_CONTAINER: Final = (
    "INSERT INTO containers (uid, namespace, pod, container) VALUES (?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)
_FIND_CONTAINER: Final = (
    "SELECT id FROM containers WHERE uid = ? AND namespace = ? AND pod = ? AND container = ?"
)
_CLOSE_HOLDING: Final = """
UPDATE holdings SET end_ns = until_ns WHERE id = ? AND end_ns IS NULL
"""
_DROP_HOLDING: Final = "DELETE FROM holdings WHERE id = ?"
_PUT_DEVICE: Final = """
INSERT INTO devices (uuid, model, profile, gpu) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    model = excluded.model, profile = excluded.profile, gpu = excluded.gpu
"""
_PUT_POD: Final = """
UPDATE containers SET owner_kind = ?, owner_name = ?, labels = ?, labels_cut = ? WHERE id = ?
"""


class BatchWriter:
    """Writes batches to the ledger file, each in one transaction.

    Attributes:
        connection: connection to a file with the ledger's tables.

    Args:
        connection: the connection; no transaction is open.
        boot: id of the boot whose monotonic clock the accounts use; empty if unknown.
    """

    def __init__(self, connection: sqlite3.Connection, boot: str = "") -> None:
        self.connection = connection
        self._boot = boot
        self._ids: dict[str | PartialRef, int] = {}

    def write_batch(self, batch: Batch) -> None:
        """Write a batch, unless the file has it already.

        The file can have it because a commit can succeed although it reports an error.

        Raises:
            sqlite3.Error: the batch may not have been written. It is never written in part.
        """
        query = "SELECT ifnull(max(value), '') FROM meta WHERE key = 'last'"
        try:
            with transaction(self.connection):
                (last,) = self.connection.execute(query).fetchone()
                if last != batch.token:
                    self._put(batch)
        except BaseException:
            self.clear_caches()
            raise

    def clear_caches(self) -> None:
        """Clear the cached ids, because the file's contents may have changed."""
        self._ids.clear()

    def _put(self, batch: Batch) -> None:
        run = self.connection.execute
        if batch.start_ns is not None:
            run(_BEGIN, (START_KEY, str(batch.start_ns)))
        for device in batch.devices.values():
            profile = device.mig.profile if device.mig is not None else ""
            names = device.uuid, device.model, profile, device.gpu_uuid
            run(_PUT_DEVICE, [utf8(name) for name in names])
            if device.index is not None:
                write_gpu_index(self.connection, utf8(device.gpu_uuid), device.index)
        sealed = sealed_before(self.connection)
        for subject, pod in batch.pods.items():
            columns = *_pod_columns(pod), self._container(subject)
            if sealed is not None:
                mark_changed_pod(self.connection, columns)
            run(_PUT_POD, columns)
        self._add_hours(
            _ADD_HOUR,
            "hours",
            [
                (hour, self._device(device), self._container(container), *amounts)
                for (hour, device, container), amounts in batch.hours.items()
            ],
            sealed,
        )
        self._add_hours(
            _ADD_DEVICE_HOUR,
            "device_hours",
            [(hour, self._device(uuid), *rest) for hour, uuid, *rest in batch.device_hours()],
            sealed,
        )
        self._many(
            "INSERT OR REPLACE INTO gaps VALUES (?, ?, ?, ?, ?)",
            [
                (own_id, self._device(gap.device), gap.start_ns, gap.end_ns, gap.reason)
                for own_id, gap in batch.gaps.items()
            ],
        )
        self._many(_PUT_HOLDING, [self._holding(row) for row in batch.holdings.values()])
        self._many(_CLOSE_HOLDING, [(utf8(own_id),) for own_id in sorted(batch.closed)])
        self._many(_DROP_HOLDING, [(utf8(own_id),) for own_id in sorted(batch.dropped)])
        if sealed is not None:
            holdings = {*batch.holdings, *batch.closed, *batch.dropped}
            mark_changed(self.connection, "holding", map(utf8, sorted(holdings)), sealed)
            mark_changed(self.connection, "gap", sorted(batch.gaps), sealed)
        self._many(
            "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)",
            [
                (utf8(uuid), usage.at.wall_ns, dump(usage), self._boot)
                for uuid, usage in batch.states.items()
            ],
        )
        run("INSERT OR REPLACE INTO meta VALUES ('last', ?)", (batch.token,))
        if len(self._ids) > _MAX_CACHED_IDS:
            self._ids.clear()

    def _add_hours(
        self, statement: str, table: str, rows: Sequence[_Row], sealed: int | None
    ) -> None:
        """Add gains to a table of hours; those of sealed hours also to the table of late gains."""
        self._many(statement.format(table=table), rows)
        if sealed is not None:
            late = [row for row in rows if isinstance(row[0], int) and row[0] < sealed]
            self._many(statement.format(table=f"late_{table}"), late)

    def _many(self, statement: str, rows: Iterable[_Row]) -> None:
        self.connection.executemany(statement, map(_clamped, rows))

    def _holding(self, row: HoldingRow) -> _Row:
        one = row.holding
        return (
            utf8(one.id),
            self._device(one.device),
            self._container(one.subject),
            row.start_ns,
            row.until_ns if one.end is not None else None,
            row.until_ns,
            utf8(one.source),
            one.evidence.name.lower() if one.evidence is not None else "",
            one.counted_ns,
            one.gap_ns,
            one.held_ns,
            one.busy_ns,
            one.energy_mj,
            one.memory_peak_bytes,
            one.memory_mean_bytes,
            one.busy_mean_ppm,
            one.busy_peak_ppm,
            json.dumps(dict(one.xids)),
            one.contested_ns,
            one.switching_ns,
        )

    def _device(self, uuid: str) -> int:
        return self._id(uuid, (uuid,), _NEW_DEVICE, "SELECT id FROM devices WHERE uuid = ?")

    def _container(self, subject: PartialRef | None) -> int:
        if subject is None:
            return UNATTRIBUTED_ID
        names = subject.uid, subject.namespace, subject.pod, subject.container
        return self._id(subject, names, _NEW_CONTAINER, _FIND_CONTAINER)

    def _id(self, key: str | PartialRef, names: Iterable[str], insert: str, find: str) -> int:
        known = self._ids.get(key)
        if known is None:
            texts = [utf8(name) for name in names]
            self.connection.execute(insert, texts)
            (known,) = self.connection.execute(find, texts).fetchone()
            self._ids[key] = known
        return known


def _clamped(row: _Row) -> _Row:
    """Return a row with all numbers within limits; a damaged recording has any numbers."""
    return tuple(
        [min(max(one, -_MAX_NUMBER), _MAX_NUMBER) if isinstance(one, int) else one for one in row]
    )


def _pod_columns(pod: PodInfo) -> tuple[str, str, str, int]:
    labels = list(pod.labels)
    while len(text := json.dumps(dict(labels), separators=(",", ":"))) > LABELS_BYTES:
        labels.pop()
    return utf8(pod.owner_kind), utf8(pod.owner_name), text, len(pod.labels) - len(labels)


def utf8(text: str) -> str:
    """Return a name as valid UTF-8; names from the system may contain other bytes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
