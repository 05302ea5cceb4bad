"""The archive of a simulated fleet: each node's ledger, sealed and written as podgpu does it."""

import shutil
import sqlite3
from pathlib import Path
from typing import Final

from pipeline.archive.database import Database, open_database
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.raw_object import put_rows
from pipeline.ledger.outbox import first_object, remove_object
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.sealing import seal
from tests.bench.fleet.ledger_files import write_ledger
from tests.bench.fleet.node_plan import NodePlan

_DELAY_NS: Final = HOUR_NS // 3
"""Nanoseconds after the end of an hour at which `podgpu archive` writes it."""


class UnflushedStore(ObjectStore):
    """A store in a folder that does not wait for the disk. A killed run writes its node again."""

    def put(self, key: str, file: Path) -> None:
        """Write a file as an object."""
        target = Path(self.location) / key
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def write_node(
    plan: NodePlan, seed: int, step_hours: int, location: Path, ledgers: Path, *, keep: bool
) -> int:
    """Write the ledgers of a node and their rows to the archive; return the number of rows.

    Args:
        plan: the node.
        seed: seed of the fleet.
        step_hours: hours between two writes to the archive; podgpu's default is 1.
        location: folder of the archive.
        ledgers: folder for the ledger files.
        keep: whether the ledger files are kept.
    """
    store, count = UnflushedStore(str(location)), 0
    scratch = ledgers / f"{plan.name}.scratch"
    for leftover in ledgers.glob(f"{plan.name}-*.db*"):
        leftover.unlink()
    shutil.rmtree(location / "v1" / "nodes" / plan.cluster / plan.name, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    with open_database(scratch) as database:
        for span in plan.spans:
            path = ledgers / f"{plan.name}-{span.number}.db"
            for end_ns, connection in write_ledger(path, plan, span, seed, step_hours):
                if end_ns == span.start_ns // HOUR_NS * HOUR_NS + HOUR_NS or end_ns % HOUR_NS == 0:
                    count += _write_rows(connection, plan, end_ns, (store, database, scratch))
            if not keep:
                path.unlink()
    shutil.rmtree(scratch)
    return count


def _write_rows(
    connection: sqlite3.Connection,
    plan: NodePlan,
    end_ns: int,
    target: tuple[ObjectStore, Database, Path],
) -> int:
    count = 0
    while sealed := seal(connection, plan.cluster, plan.name, end_ns + _DELAY_NS):
        count += sealed
        while (found := first_object(connection)) is not None:
            store, database, folder = target
            put_rows(store, database, found.rows, folder)
            remove_object(connection, found)
    return count
