"""Opens the ledger's file for the one who writes it, and makes it where it is missing. Blocks."""

import os
import sqlite3
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from pipeline.ledger.account_state import load
from pipeline.ledger.errors import CorruptError, LedgerError
from pipeline.ledger.file_open import READ_ERRORS, identify, to_ledger_error
from pipeline.ledger.migrations import migrate
from pipeline.ledger.schema import APPLICATION_ID, TABLES, VERSION, WRITE_VERSION, columns_of
from pipeline.model import DeviceUsage

Synchronous = Literal["normal", "full"]

MODE: Final = 0o640
_BUSY_TIMEOUT: Final = 1.0
"""Seconds that a commit waits for another program that has the file."""

_SMALL: Final = 32 << 20
"""Bytes up to which a file is looked through page by page when it is opened."""

_LOG_BYTES: Final = 8 << 20
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a podgpu before has left in the file.

    Attributes:
        accounts: the accounts, by device.
        invalid: how many accounts make no sense; they are not among `accounts`.
        open_holdings: ids of the holdings without an end.
        boots: by device, the boot of the machine in which its account was written; empty where that
            isn't known.
    """

    accounts: Mapping[str, DeviceUsage]
    invalid: int
    open_holdings: tuple[str, ...]
    boots: Mapping[str, str]

    def shifted_devices(self, states: Mapping[str, DeviceUsage], boot: str) -> list[str]:
        """Return the devices whose moments have changed: by another boot, or a clock that was set.

        Args:
            states: the accounts with moments of the present clocks.
            boot: the present one; where that is empty, nothing is told.
        """
        return [
            device
            for device, told in self.accounts.items()
            if boot and (self.boots[device] != boot or states[device].at != told.at)
        ]


def open_readwrite(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open a ledger to write it; an empty or missing file becomes one.

    Args:
        path: the file, in a folder that is there.
        synchronous: `normal`: a power cut may cost the last commits, and harms nothing else;
            `full`: each commit is on the disk when it is done.

    Returns:
        A connection for the thread that calls, in autocommit.

    Raises:
        CorruptError: it is no ledger, or damaged.
        ForeignError: it is a newer one, or another program's database: it wasn't touched.
        LedgerError: it can't be had now.
    """
    place = str(path)
    _make(path)
    try:
        uri = f"file:{quote(place, errors='surrogateescape')}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None)
    except READ_ERRORS as error:
        raise to_ledger_error(place, error) from error
    try:
        _prepare(connection, path, synchronous)
    except READ_ERRORS as error:
        connection.close()
        raise to_ledger_error(place, error) from error
    except OSError as error:
        connection.close()
        raise _open_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Make an empty file where there is none; SQLite gives what lies beside it the same mode."""
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        try:
            mode = each.lstat().st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _open_error(path, error) from error
        if not stat.S_ISREG(mode):
            saw = "is a link" if stat.S_ISLNK(mode) else "is no ordinary file"
            raise LedgerError(str(each), saw, "remove it, or give another path", reason="link")
    try:
        descriptor = os.open(path, _NEW, MODE)
    except FileExistsError:
        return
    except OSError as error:
        raise _open_error(path, error) from error
    try:
        os.fchmod(descriptor, MODE)
    except OSError as error:
        raise _open_error(path, error) from error
    finally:
        os.close(descriptor)


def _open_error(path: Path, error: OSError) -> LedgerError:
    mend = f"mount the folder {path.parent} writable for uid {os.geteuid()}, or give another path"
    return LedgerError(str(path), (error.strerror or str(error)).lower(), mend)


def _prepare(connection: sqlite3.Connection, path: Path, synchronous: Synchronous) -> None:
    run = connection.execute
    # Not in files beside: with a root file system that is read-only there is no place for them.
    run("PRAGMA temp_store = MEMORY")
    (application,) = run("PRAGMA application_id").fetchone()
    if not application and not columns_of(connection):
        # New, or its maker was killed before it had tables.
        run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {VERSION}; {WRITE_VERSION} COMMIT;"
        )
    identify(connection, str(path))
    if path.stat().st_size <= _SMALL:
        (told,) = run("PRAGMA quick_check(1)").fetchone()
        if told != "ok":
            raise CorruptError(str(path), str(told), "take a copy of it that is whole")
    run("PRAGMA journal_mode = WAL")
    run(f"PRAGMA synchronous = {synchronous.upper()}")
    run(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    migrate(connection)


def read_stored_state(connection: sqlite3.Connection, place: str) -> StoredState:
    """Return what a podgpu before has left in the file.

    Raises:
        LedgerError: it can't be read.
    """
    states, boots, unsound = {}, {}, 0
    try:
        rows = connection.execute("SELECT device, usage, boot FROM state").fetchall()
        for device, text, boot in rows:
            try:
                states[device], boots[device] = load(device, text), str(boot)
            except (ValueError, TypeError):
                unsound += 1
        going_on = connection.execute("SELECT id FROM holdings WHERE end_ns IS NULL").fetchall()
    except READ_ERRORS as error:
        raise to_ledger_error(place, error) from error
    return StoredState(states, unsound, tuple([str(own_id) for (own_id,) in going_on]), boots)
