"""Migration of a ledger from earlier versions to the current one. All functions block."""

import json
import sqlite3
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from pipeline.ledger.batch_writer import utf8
from pipeline.ledger.schema import (
    ARCHIVE_TABLES,
    CONTEST_COLUMNS,
    GAPS,
    HOLDINGS,
    INDEXES,
    VERSION,
    WRITE_LEDGER_ID,
    WRITE_VERSION,
    columns_of,
    transaction,
)

_ID_BYTES: Final = 12

_HOLDINGS: Final = """
INSERT INTO holdings SELECT
    id_of(d.uuid, c.namespace, c.pod, c.container, c.uid, h.start_ns), h.device, h.container,
    h.start_ns, h.end_ns, h.until_ns, h.source, h.evidence, h.counted_ns, h.gap_ns, h.held_ns,
    h.busy_ns, h.energy_mj, h.memory_peak_bytes, h.memory_mean_bytes, h.busy_mean_ppm,
    h.busy_peak_ppm, h.xids, NULL, NULL
FROM old_holdings AS h
LEFT JOIN devices AS d ON d.id = h.device LEFT JOIN containers AS c ON c.id = h.container
"""
_GAPS: Final = """
INSERT INTO gaps SELECT
    id_of(d.uuid, g.start_ns), g.device, g.start_ns, g.end_ns, g.reason
FROM old_gaps AS g LEFT JOIN devices AS d ON d.id = g.device
"""


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a ledger to the current version in one transaction.

    If podgpu is killed meanwhile, the file is unchanged.

    Args:
        connection: the writer's connection; no transaction is open. The file is a ledger of the
            current version or an older one.

    Raises:
        sqlite3.Error: the file cannot be written; it is unchanged.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version >= VERSION:
        return
    with transaction(connection):
        if version < 2:
            _migrate_from_1(connection)
        known = columns_of(connection)
        for table, column in CONTEST_COLUMNS:
            if (table, column) not in known:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER")
        for statement in filter(str.strip, ARCHIVE_TABLES.split(";")):
            connection.execute(statement)
        connection.execute(WRITE_LEDGER_ID)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(WRITE_VERSION)


def _migrate_from_1(connection: sqlite3.Connection) -> None:
    """Give holdings and gaps ids, and add the columns of version 2."""
    connection.create_function("id_of", -1, _id_of, deterministic=True)
    run = connection.execute
    for name in INDEXES:
        run(f"DROP INDEX IF EXISTS {name}")
    for name, table, copy in (("holdings", HOLDINGS, _HOLDINGS), ("gaps", GAPS, _GAPS)):
        run(f"ALTER TABLE {name} RENAME TO old_{name}")
        run(table)
        run(copy)
        run(f"DROP TABLE old_{name}")
    for statement in INDEXES.values():
        run(statement)
    run("ALTER TABLE device_hours ADD COLUMN unknown_ns INTEGER")
    run("ALTER TABLE state ADD COLUMN boot TEXT NOT NULL DEFAULT ''")
    for device, text in run("SELECT device, usage FROM state").fetchall():
        run("UPDATE state SET usage = ? WHERE device = ?", (_with_ids(text), device))


def _id_of(*parts: object) -> str:
    """Return an id derived from the key columns of version 1; equal parts give the same id."""
    text = "\0".join(map(str, parts))
    return blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest()


def _with_ids(text: Any) -> Any:
    """Return an account of version 1, as JSON, with ids. A holding gets the id of its row.

    An invalid account is returned unchanged, and its reader reports it.
    """
    try:
        account = json.loads(text)
        device, start = utf8(account["device"]), account["start"]["wall_ns"]
        account["id"] = _id_of("account", device, start)
        for one in account["containers"]:
            names = _names(one["subject"])
            one["id"] = _id_of("container", device, *names, one["start"]["wall_ns"])
            holding = one["holding"]
            if holding is not None:
                start = holding["start"]["wall_ns"]
                holding["id"] = _id_of(device, *_names(holding["subject"]), start)
        return json.dumps(account, separators=(",", ":"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return text


def _names(subject: Mapping[str, str]) -> list[str]:
    return [utf8(subject[name]) for name in ("namespace", "pod", "container", "uid")]
