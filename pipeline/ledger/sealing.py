"""Sealing: closed hours and ended holdings become rows of the archive, in the outbox.

Each amount is sealed exactly once. What changes behind the sealed hours afterwards was recorded by
`late_changes`, and becomes further rows: a gain adds to the earlier rows, and a holding, a gap or
the facts of a container replace them. All functions block.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from pipeline.ledger.archive_backlog import EARLIEST, closed_before
from pipeline.ledger.archive_rows import RowMaker, is_withdrawal
from pipeline.ledger.outbox import add_rows
from pipeline.ledger.schema import HOUR_NS, invalid_value_error, transaction

_MAX_ROWS: Final = 1000
"""Number of rows after which a sealing ends, and the next one continues. The sink cannot commit
while a sealing has locked the file."""

_DAY_HOURS: Final = 24

_USAGE: Final = """
SELECT hour, device, container, held_ns, busy_ns, energy_mj, contested_ns, switching_ns
FROM {prefix}hours
WHERE hour >= ? AND hour < ? ORDER BY hour, device, container LIMIT ?
"""
_DEVICES: Final = """
SELECT hour, device, accounted_ns, gap_ns, busy_ns, energy_mj, unknown_ns FROM {prefix}device_hours
WHERE hour >= ? AND hour < ? ORDER BY hour, device LIMIT ?
"""
_ENDED: Final = "SELECT id FROM {item}s WHERE end_ns >= ? AND end_ns < ?"
_CHANGED: Final = "SELECT id FROM changed_items WHERE kind = ? ORDER BY id LIMIT ?"


def note_written(connection: sqlite3.Connection, location: str | None, now_ns: int) -> None:
    """Note that everything that could be sealed is in the archive.

    Args:
        connection: a connection for writing; no transaction is open.
        location: where objects were written; None if there were none.
        now_ns: the current time, in nanoseconds of Unix time.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    connection.execute(
        "UPDATE archive SET location = ifnull(?, location), written_ns = ?", (location, now_ns)
    )


def seal(connection: sqlite3.Connection, cluster: str, node: str, now_ns: int) -> int:
    """Seal what is closed, in one transaction; return the number of rows added to the outbox.

    A call does a limited amount of work. 0 means that nothing is left to seal. If the outbox has
    objects already, nothing is sealed: write them first.

    Args:
        connection: a connection for writing; no transaction is open. Its commits must be on the
            disk when they return (`PRAGMA synchronous = FULL`): rows that were written to the
            archive must not be sealed again after a power failure.
        cluster: name of the cluster, for the rows.
        node: name of the node, for the rows.
        now_ns: the current time, in nanoseconds of Unix time.

    Raises:
        sqlite3.Error: the file cannot be written, or contains an invalid value.
    """
    with transaction(connection):
        if connection.execute("SELECT EXISTS (SELECT 1 FROM outbox_objects)").fetchone()[0]:
            return 0
        connection.execute(
            "INSERT OR IGNORE INTO archive (only_row, sealed_before, next_serial) VALUES (0, ?, 1)",
            (EARLIEST,),
        )
        query = "SELECT sealed_before, next_serial FROM archive"
        before, first = map(int, connection.execute(query).fetchone())
        try:
            sealing = _Sealing(connection, before, closed_before(now_ns))
            rows = sealing.rows(RowMaker(connection, cluster, node))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise invalid_value_error(repr(error)) from error
        # Withdrawals first: of the rows of a holding, the one with the highest serial is valid.
        rows.sort(key=lambda row: (not is_withdrawal(row), row["day"]))
        beyond = add_rows(connection, first, rows)
        connection.execute(
            "UPDATE archive SET sealed_before = ?, next_serial = ?", (sealing.until, beyond)
        )
    return beyond - first


class _Sealing:
    """One sealing, in a transaction.

    Args:
        connection: the connection.
        before: the hour before which all hours are sealed already.
        closed: the hour before which all hours are closed.

    Attributes:
        until: the hour before which all hours are sealed by this sealing.
    """

    def __init__(self, connection: sqlite3.Connection, before: int, closed: int) -> None:
        self._connection = connection
        self._before = before
        self._closed = closed
        self.until = before

    def rows(self, maker: RowMaker) -> list[dict[str, Any]]:
        """Return the rows without serials: first late changes, then new hours, up to a limit."""
        # The hours of late gains are closed by the present clock, even if the clock was set back.
        late = min(self._before, self._closed)
        found = [*self._late("usage", _USAGE, maker, late)]
        found += self._late("device", _DEVICES, maker, late)
        for item in ("holding", "gap"):
            changed = self._connection.execute(_CHANGED, (item, _MAX_ROWS)).fetchall()
            found += self._items(item, {own_id for (own_id,) in changed}, maker)
        if len(found) < _MAX_ROWS:
            self.until = self._next_hour()
            found += self._new_hours(maker)
        found += self._facts(maker)
        return found

    def _late(self, kind: str, query: str, maker: RowMaker, until: int) -> Iterator[dict[str, Any]]:
        table = "late_hours" if kind == "usage" else "late_device_hours"
        keys = "hour = ? AND device = ?" + (" AND container = ?" if kind == "usage" else "")
        count = 3 if kind == "usage" else 2
        rows = self._connection.execute(query.format(prefix="late_"), (EARLIEST, until, _MAX_ROWS))
        for row in rows.fetchall():
            yield maker.amounts(kind, row)
            self._connection.execute(f"DELETE FROM {table} WHERE {keys}", row[:count])  # noqa: S608

    def _next_hour(self) -> int:
        """Return the hour before which hours can be sealed now, at least one hour with data."""
        if self._before >= self._closed:
            return self._before
        query = "SELECT hour FROM hours WHERE hour >= ? AND hour < ? ORDER BY hour LIMIT 1 OFFSET ?"
        found = [
            self._connection.execute(query, (self._before, self._closed, offset)).fetchone()
            for offset in (0, _MAX_ROWS)
        ]
        if found[1] is None:
            return self._closed
        return max(int(found[1][0]), int(found[0][0]) + 1)

    def _new_hours(self, maker: RowMaker) -> Iterator[dict[str, Any]]:
        run, span = self._connection.execute, (self._before, self.until)
        for kind, query in (("usage", _USAGE), ("device", _DEVICES)):
            for row in run(query.format(prefix=""), (*span, -1)).fetchall():
                yield maker.amounts(kind, row)
        ends = [hour * HOUR_NS for hour in span]
        for item in ("holding", "gap"):
            ids = {own_id for (own_id,) in run(_ENDED.format(item=item), ends)}
            yield from self._items(item, ids, maker)

    def _items(self, item: str, ids: set[str], maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the rows of holdings or gaps: new ones, replacements, and withdrawals.

        A row belongs to the day of its end. If that day changes, the row of the earlier day is
        withdrawn, because a reader of that day alone must not count it.
        """
        run = self._connection.execute
        for own_id in sorted(ids):
            stored = maker.item(item, own_id)
            end_ns = None if stored is None else stored.get("end_ns")
            if end_ns is not None and end_ns >= self._closed * HOUR_NS:
                continue  # it is still marked, or ends in an hour that is not sealed yet
            run("DELETE FROM changed_items WHERE kind = ? AND id = ?", (item, own_id))
            query = "SELECT day FROM sealed_items WHERE kind = ? AND id = ?"
            day = None if end_ns is None else end_ns // (_DAY_HOURS * HOUR_NS)
            for (earlier,) in run(query, (item, own_id)).fetchall():
                if earlier != day:
                    yield maker.withdrawal(item, own_id, earlier)
                    run("DELETE FROM sealed_items WHERE kind = ? AND id = ?", (item, own_id))
            if stored is not None and end_ns is not None:
                yield stored
                run("INSERT OR IGNORE INTO sealed_items VALUES (?, ?, ?)", (item, own_id, day))

    def _facts(self, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield facts of containers: for new days, and again for all days if they changed."""
        run = self._connection.execute
        days = set(maker.container_days)
        changed = run(_CHANGED, ("container", _MAX_ROWS)).fetchall()
        for (container,) in changed:
            query = "SELECT day FROM sealed_items WHERE kind = 'container' AND id = ?"
            earlier = {(container, day) for (day,) in run(query, (container,))}
            yield from [maker.facts(*each) for each in sorted(earlier)]
            days -= earlier
            run("DELETE FROM changed_items WHERE kind = 'container' AND id = ?", (container,))
        for container, day in sorted(days):
            added = run(
                "INSERT OR IGNORE INTO sealed_items VALUES ('container', ?, ?)", (container, day)
            )
            if added.rowcount:
                yield maker.facts(container, day)
