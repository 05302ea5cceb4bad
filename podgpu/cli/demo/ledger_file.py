"""Write the ledger of the demo, with its sample data."""

import os
from contextlib import closing
from pathlib import Path
from typing import Final

from pipeline.base.clock import boot_id
from pipeline.base.version import VERSION
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.file_open import ForeignError, LedgerError, ledger_errors, open_readonly
from pipeline.ledger.sample_mark import mark_as_sample, sample_maker
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import Instant
from podgpu.cli.demo.ledger_place import new_file_of, remove
from podgpu.cli.demo.recorded_node import RecordedNode
from podgpu.cli.demo.sample_usage import sample_batch
from sinks.ledger.writer_lock import Lock

MAKER: Final = "podgpu demo"
"""The mark of the demo's ledger."""


def write(path: Path, node: RecordedNode, now: Instant) -> None:
    """Write the ledger, and replace the one of an earlier demo.

    Args:
        path: the file, in an existing folder.
        node: the node of the recording.
        now: the time of the last sample.

    Raises:
        LedgerError: another demo uses the file, it is not a demo's ledger, or it cannot be written.
        OSError: the file cannot be written.
    """
    lock = Lock(path)
    lock.take()
    try:
        _check_replaceable(path)
        # A reader of the old file is not disturbed, and a killed demo leaves no incomplete ledger.
        new = new_file_of(path)
        remove(new)
        try:
            _write_new(new, node, now)
            remove(path)
            new.rename(path)
        except BaseException:
            remove(new)
            raise
    finally:
        lock.release()


def _write_new(path: Path, node: RecordedNode, now: Instant) -> None:
    with closing(open_readwrite(path, "normal")) as connection, ledger_errors(path):
        for each in (("node", node.name), ("podgpu", VERSION)):
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", each)
        mark_as_sample(connection, MAKER)
        BatchWriter(connection, boot_id()).write_batch(sample_batch(node, now))
        # All data must be in the file itself before it is renamed. `close` ignores a full disk.
        connection.execute("PRAGMA journal_mode = DELETE")


def _check_replaceable(path: Path) -> None:
    """Check that a file is an earlier ledger of the demo, or does not exist.

    Raises:
        LedgerError: it is another file.
    """
    if not os.path.lexists(path):
        return
    fix = "move it away: the demo replaces only its own ledger"
    try:
        with ledger_errors(path), closing(open_readonly(path)) as connection:
            maker = sample_maker(connection)
    except LedgerError as error:
        raise LedgerError(str(path), error.problem, fix) from error
    if maker != MAKER:
        raise ForeignError(str(path), "is not a ledger of podgpu demo", fix)
