"""Creation and opening of the ledger file for the writer. All functions block."""

import os
import sqlite3
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from pipeline.ledger.account_state import load
from pipeline.ledger.file_open import LedgerError, check_integrity, identify, ledger_errors
from pipeline.ledger.migrations import migrate
from pipeline.ledger.sample_mark import sample_maker
from pipeline.ledger.schema import (
    APPLICATION_ID,
    TABLES,
    VERSION,
    WRITE_LEDGER_ID,
    WRITE_VERSION,
    columns_of,
)
from pipeline.model import DeviceUsage

Synchronous = Literal["normal", "full"]

MODE: Final = 0o640
_BUSY_TIMEOUT: Final = 1.0
"""Seconds that a commit waits for a program that has locked the file."""

_LOG_BYTES: Final = 8 << 20
_CREATE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state that an earlier run of podgpu has stored in the file.

    Attributes:
        accounts: the valid accounts by device.
        invalid: number of invalid accounts; they are not in `accounts`.
        open_holdings: ids of the holdings without an end.
        boots: the boot id with which each account was written, by device; empty if unknown.
        is_sample: whether the file has sample data, which no podgpu measured.
    """

    accounts: Mapping[str, DeviceUsage]
    invalid: int
    open_holdings: tuple[str, ...]
    boots: Mapping[str, str]
    is_sample: bool = False

    def shifted_devices(self, states: Mapping[str, DeviceUsage], boot: str) -> list[str]:
        """Return the devices whose account has other moments now than in the file.

        The reason is another boot, or that the wall clock was set.

        Args:
            states: the accounts, converted to the current clocks, by device.
            boot: the current boot id; if it is empty, no device is returned.
        """
        return [
            device
            for device, stored in self.accounts.items()
            if boot and (self.boots[device] != boot or states[device].at != stored.at)
        ]


def open_readwrite(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open a ledger for writing, and migrate an older one; create a file that is missing.

    A file without tables, whose creator was killed, is completed.

    Args:
        path: the file; its folder must exist.
        synchronous: with `normal`, a power failure may lose the last commits but does no other
            damage; with `full`, each commit is on the disk when it returns.

    Returns:
        A connection for the calling thread, in autocommit mode. The caller closes it.

    Raises:
        CorruptError: the file is not a ledger, or is damaged.
        ForeignError: the file is a newer ledger or another program's database; it is unchanged.
        LedgerError: the file cannot be opened now.
    """
    try:
        with ledger_errors(path):
            _create_file(path)
            uri = f"file:{quote(str(path), errors='surrogateescape')}?mode=rw"
            connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None)
            try:
                _prepare(connection, path, synchronous)
            except BaseException:
                connection.close()
                raise
    except OSError as error:
        fix = f"mount the folder {path.parent} writable for uid {os.geteuid()}"
        problem = (error.strerror or str(error)).lower()
        raise LedgerError(str(path), problem, f"{fix}, or give another path") from error
    return connection


def _create_file(path: Path) -> None:
    """Create an empty file if the file is missing; SQLite gives its other files the same mode.

    Raises:
        LedgerError: the file, or another file of SQLite, is a link or no regular file.
        OSError: the file cannot be created.
    """
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        try:
            mode = each.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            problem = "is a symbolic link" if stat.S_ISLNK(mode) else "is not a regular file"
            raise LedgerError(str(each), problem, "remove it, or give another path", reason="link")
    try:
        descriptor = os.open(path, _CREATE_FLAGS, MODE)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, MODE)
    finally:
        os.close(descriptor)


def _prepare(connection: sqlite3.Connection, path: Path, synchronous: Synchronous) -> None:
    run = connection.execute
    # With a read-only root file system there is no folder for temporary files.
    run("PRAGMA temp_store = MEMORY")
    (application,) = run("PRAGMA application_id").fetchone()
    if not application and not columns_of(connection):
        # The file is new, or its creator was killed before it created the tables.
        run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {VERSION}; {WRITE_VERSION} {WRITE_LEDGER_ID} COMMIT;"
        )
    identify(connection, str(path))
    check_integrity(connection, path)
    run("PRAGMA journal_mode = WAL")
    run(f"PRAGMA synchronous = {synchronous.upper()}")
    run(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    migrate(connection)


def read_stored_state(connection: sqlite3.Connection, name: str) -> StoredState:
    """Return the state that an earlier run of podgpu has stored in the file.

    Raises:
        LedgerError: the file cannot be read.
    """
    states, boots, invalid = {}, {}, 0
    with ledger_errors(name):
        rows = connection.execute("SELECT device, usage, boot FROM state").fetchall()
        open_ids = connection.execute("SELECT id FROM holdings WHERE end_ns IS NULL").fetchall()
        is_sample = bool(sample_maker(connection))
    for device, text, boot in rows:
        try:
            states[device], boots[device] = load(device, text), str(boot)
        except (ValueError, TypeError):
            invalid += 1
    holdings = tuple([str(own_id) for (own_id,) in open_ids])
    return StoredState(states, invalid, holdings, boots, is_sample)
