"""Opening of the ledger file for readers. Checks and errors of the file for readers and the writer.

All functions block.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from pipeline.ledger.schema import APPLICATION_ID, VERSION, columns, columns_of

_WAIT: Final = 5.0
"""Seconds that a reader waits while the writer has locked the file."""

_CACHE_KIB: Final = 64 << 10

_MAX_CHECKED_BYTES: Final = 32 << 20
"""Maximum size in bytes of files that are checked for damage."""

READ_ERRORS: Final = (sqlite3.Error, UnicodeError)
"""Exceptions if a file cannot be read or written, or if it contains text that is not UTF-8."""

_CORRUPT: Final = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_FORMAT,
    }
)
_NOT_UTF8: Final = "Could not decode to UTF-8"
"""Start of an error message of Python's sqlite3 module; the error has no SQLite code."""

_UNUSABLE: Final = frozenset(
    {
        "unsupported file format",
        "attached databases must use the same text encoding as main database",
    }
)
"""Messages for a damaged header; these errors have SQLite's generic code."""

_FIX_ACCESS: Final = (
    "check that the file and the files next to it (-wal, -shm) are readable, and that the disk "
    "responds"
)
_ERRORS_BY_CODE: Final = MappingProxyType(
    {
        sqlite3.SQLITE_BUSY: ("locked", "stop the other program that has locked the file"),
        sqlite3.SQLITE_LOCKED: ("locked", "stop the other program that has locked the file"),
        sqlite3.SQLITE_FULL: ("no_space", "free space on its disk, or lower max_size"),
        sqlite3.SQLITE_IOERR: ("io_error", "check the kernel log for disk errors, and the quota"),
        sqlite3.SQLITE_READONLY: ("read_only", "make the file and its folder writable for podgpu"),
        sqlite3.SQLITE_PERM: ("permission", _FIX_ACCESS),
        sqlite3.SQLITE_CANTOPEN: ("permission", _FIX_ACCESS),
    }
)
"""Reason and fix by SQLite's error code."""


class LedgerError(Exception):
    """The ledger cannot be used. The text contains the path, the problem and the fix.

    Attributes:
        path: the file.
        problem: what is wrong.
        fix: what to do.
        reason: a short name of the problem, used as the value of a metric label.
    """

    def __init__(self, path: str, problem: str, fix: str, *, reason: str = "other") -> None:
        super().__init__(f"{path}: {problem}; {fix}")
        self.path = path
        self.problem = problem
        self.fix = fix
        self.reason = reason


class CorruptError(LedgerError):
    """The file is not a ledger: it is damaged, or has other contents."""

    def __init__(
        self, path: str, problem: str, fix: str = "restore the file from a valid copy"
    ) -> None:
        super().__init__(path, problem, fix, reason="corrupt")


class ForeignError(LedgerError):
    """The file is valid but belongs to another program or a newer podgpu; it is not changed."""


def open_readonly(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open a ledger for reading. Nothing is written, and no other file is created.

    The sink may be writing, may have ended or may have been killed. A copy of the main file without
    its log can be opened, too; it has the data up to the last checkpoint.

    Args:
        path: the file.

    Returns:
        A connection for the calling thread; the caller closes it.

    Raises:
        LedgerError: the file does not exist, is not readable, or is not a ledger of a supported
            version; or its log was copied without its shared memory file.
    """
    file = Path(path)
    name = str(file)
    check_readable(file)
    with ledger_errors(name):
        try:
            address = _uri(file)
        except OSError as error:
            raise LedgerError(name, (error.strerror or str(error)).lower(), _FIX_ACCESS) from error
        connection = sqlite3.connect(address, uri=True, timeout=_WAIT, isolation_level=None)
        try:
            identify(connection, name)
            connection.execute("PRAGMA query_only = 1")
            # Sums over a year are calculated in memory, not in temporary files.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        except BaseException:
            connection.close()
            raise
    return connection


def check_readable(path: Path) -> None:
    """Check that the file exists and is readable, without opening it.

    If this process also writes the file, closing another descriptor of it would release all of
    SQLite's locks on it (fcntl(2)). Another program could then delete the log.

    Raises:
        LedgerError: the file does not exist or is not readable.
    """
    name, fix = str(path), f"make the file and its folder readable for uid {os.geteuid()}"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        fix = (
            "podgpu creates it at its start: check the sink's path, and that podgpu has run with it"
        )
        raise LedgerError(name, "does not exist", fix) from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise LedgerError(name, problem.lower(), fix) from error
    if not stat.S_ISREG(mode):
        problem = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
        raise LedgerError(name, problem, "give the path of the ledger sink's file")
    if not os.access(path, os.R_OK, effective_ids=True):
        raise LedgerError(name, "permission denied", fix)


def _uri(path: Path) -> str:
    """Return the file's URI for SQLite.

    If there is no log, there is no writer. The URI states this (`immutable`), because SQLite would
    otherwise create a log in order to read the file. If there is a log, the memory that readers and
    the writer share is opened read-only.

    Raises:
        LedgerError: there is a log that SQLite cannot read, because the shared memory file is
            missing.
    """
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    logged = shared.exists()
    if not logged and log.exists() and log.stat().st_size:
        fix = f"create the missing file, which may be empty: touch {shared}"
        raise LedgerError(str(path), f"was copied with its log but without {shared.name}", fix)
    mode = "mode=ro&readonly_shm=1" if logged else "mode=ro&immutable=1"
    return f"file:{quote(str(path.absolute()), errors='surrogateescape')}?{mode}"


def identify(connection: sqlite3.Connection, name: str) -> None:
    """Check that the file is a ledger of the current version or an older one.

    Raises:
        CorruptError: the file is not a ledger, or is damaged.
        ForeignError: the file is a newer ledger or another program's database.
        sqlite3.Error: the file cannot be read now.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    found = columns_of(connection)
    # Files of podgpu 0.1.0 have no version in the table.
    query = "SELECT value FROM meta WHERE key = 'tables'"
    has_meta = {("meta", "key"), ("meta", "value")} <= found
    row = connection.execute(query).fetchone() if has_meta else None
    if application != APPLICATION_ID:
        if columns(1) <= found and _one_byte_off(application):
            problem = "has the tables of a ledger, but its header is damaged"
            raise CorruptError(name, problem)
        if found:
            fix = "give another path"
            raise ForeignError(name, "is another program's database", fix)
        raise CorruptError(name, "has no tables", "give the path of the ledger sink's file")
    if not _matches_version(version, None if row is None else str(row[0]), found):
        problem = f"has the wrong version {version} in its header: the header is damaged"
        raise CorruptError(name, problem)
    if version > VERSION:
        problem = f"has version {version}, but this podgpu supports only versions up to {VERSION}"
        raise ForeignError(name, problem, "use a newer podgpu, or give another path")
    if missing := columns(version) - found:
        table, column = min(missing)
        problem = f"has no column {column} in the table {table}"
        raise CorruptError(name, problem, "give the path of an undamaged ledger")


def check_integrity(connection: sqlite3.Connection, path: Path) -> None:
    """Check a file of up to 32 MiB for damage. A larger file is not checked.

    Raises:
        CorruptError: the file is damaged.
        sqlite3.Error: the file cannot be read now.
    """
    if path.stat().st_size <= _MAX_CHECKED_BYTES:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise CorruptError(str(path), str(result))


def _matches_version(version: int, kept: str | None, found: frozenset[tuple[str, str]]) -> bool:
    """Whether the version in the header agrees with the contents of the file.

    Args:
        version: the version in the header. It is one byte in practice, and has no checksum.
        kept: the version in the table `meta`; None if the table has none, as in podgpu 0.1.0.
        found: the columns of all tables, as (table, column).
    """
    if kept is not None:
        return kept == str(version)
    return version == VERSION or (version == 1 and not (columns() - columns(1)) & found)


def _one_byte_off(application: int) -> bool:
    different = (application ^ APPLICATION_ID) & 0xFFFFFFFF
    return sum(byte > 0 for byte in different.to_bytes(4)) == 1


@contextmanager
def ledger_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert the exceptions in `READ_ERRORS` to `LedgerError`.

    Raises:
        LedgerError: the file cannot be used.
    """
    try:
        yield
    except READ_ERRORS as error:
        raise to_ledger_error(str(path), error) from error


def to_ledger_error(path: str, error: Exception) -> LedgerError:
    """Return the LedgerError for an exception.

    Args:
        path: the file, for the message.
        error: one of `READ_ERRORS`.
    """
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    problem = str(error)
    if isinstance(error, UnicodeError) or problem.startswith(_NOT_UTF8):
        return CorruptError(path, "contains text that is not UTF-8")
    if code in _CORRUPT or problem in _UNUSABLE:
        return CorruptError(path, problem)
    reason, fix = _ERRORS_BY_CODE.get(code, ("other", _FIX_ACCESS))
    return LedgerError(path, problem, fix, reason=reason)
