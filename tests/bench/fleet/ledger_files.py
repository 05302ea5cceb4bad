"""The ledger files of a simulated fleet."""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.sample_mark import mark_as_sample
from pipeline.ledger.schema import LEDGER_ID_KEY
from pipeline.ledger.writer_open import open_readwrite
from tests.bench.fleet.node_history import NodeHistory
from tests.bench.fleet.node_plan import LedgerSpan, NodePlan

MAKER: Final = "a simulated fleet"
"""The mark of the sample data."""


def write_ledger(
    path: Path, plan: NodePlan, span: LedgerSpan, seed: int, step_hours: int = 24
) -> Iterator[tuple[int, sqlite3.Connection]]:
    """Write a ledger file, and yield after each commit the time that it has reached.

    The time is in nanoseconds of Unix time. The connection with it has no open transaction.

    Args:
        path: the file, which does not exist yet.
        plan: the node.
        span: the time of the ledger.
        seed: seed of the fleet.
        step_hours: hours between two commits.
    """
    with closing(open_readwrite(path, "normal")) as connection:
        # A file of a killed run is made again.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('node', ?)", (plan.name,))
        mark_as_sample(connection, MAKER)
        # The id of a ledger is random, and equal seeds write equal archives.
        own_id = hashlib.sha256(f"{seed} {plan.cluster} {plan.name} {span.number}".encode())
        query = "UPDATE meta SET value = ? WHERE key = ?"
        connection.execute(query, (own_id.hexdigest()[:16], LEDGER_ID_KEY))
        writer = BatchWriter(connection)
        for end_ns, batch in NodeHistory(plan, span, seed).batches(step_hours):
            writer.write_batch(batch)
            yield end_ns, connection
