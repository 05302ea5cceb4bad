"""Opening of a ledger by the program that writes its archive. All functions block."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pipeline.files import lock_file
from pipeline.ledger.file_open import LedgerError, check_readable, identify, ledger_errors
from pipeline.ledger.schema import VERSION

_BUSY_TIMEOUT: Final = 10.0
"""Seconds to wait while the sink has locked the file."""


@contextmanager
def archive_lock(ledger: Path) -> Iterator[None]:
    """Hold the lock of the only program that writes a ledger's archive at a time.

    It is a file beside the ledger. The sink `ledger` has a lock of its own.

    Raises:
        LedgerError: another process holds the lock, or its file cannot be created.
    """
    path = ledger.with_name(f"{ledger.name}.archive-lock")
    try:
        descriptor = os.open(path, lock_file.FLAGS, 0o600)
    except OSError as error:
        fix = f"make the folder writable for uid {os.geteuid()}"
        raise LedgerError(str(path), (error.strerror or str(error)).lower(), fix) from error
    try:
        try:
            lock_file.take(descriptor)
        except BlockingIOError:
            owner = lock_file.signed(descriptor) or "another process"
            problem = f"its archive is being written by {owner}"
            fix = "run only one podgpu archive for each ledger"
            raise LedgerError(str(ledger), problem, fix, reason="locked") from None
        lock_file.sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def open_for_sealing(path: Path) -> sqlite3.Connection:
    """Open a ledger to seal what is closed, while podgpu may write it or may not run.

    The file is neither created nor migrated. Each commit is on the disk when it returns, together
    with all earlier commits of the sink: what was sealed and written to the archive is not undone
    by a power failure.

    Returns:
        A connection for the calling thread, in autocommit mode. The caller closes it.

    Raises:
        LedgerError: the file does not exist, is not a ledger, is of another version, or cannot be
            opened now.
    """
    check_readable(path)
    with ledger_errors(path):
        uri = f"file:{quote(str(path.absolute()), errors='surrogateescape')}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None)
        try:
            connection.execute("PRAGMA temp_store = MEMORY")
            identify(connection, str(path))
            _check_version(connection, path)
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
    return connection


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < VERSION:
        problem = f"has version {version} of the tables, which has no archive"
        fix = f"start podgpu of this release: it migrates the file to version {VERSION}"
        raise LedgerError(str(path), problem, fix)


def node_name(connection: sqlite3.Connection) -> str:
    """Return the name of the node whose podgpu writes the ledger; empty if it has none yet.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    found = connection.execute("SELECT value FROM meta WHERE key = 'node'").fetchone()
    return str(found[0]) if found else ""
