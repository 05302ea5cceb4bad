"""Opens the ledger's file for those who read it. Blocks."""

import os
import sqlite3
import stat
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from pipeline.ledger.errors import CorruptError, ForeignError, LedgerError
from pipeline.ledger.schema import APPLICATION_ID, VERSION, columns, columns_of, stored_version

_WAIT: Final = 5.0
"""Seconds that a reader waits for a writer that has the file to itself for a moment."""

_CACHE_KIB: Final = 64 << 10

READ_ERRORS: Final = (sqlite3.Error, UnicodeError)
"""What is raised where a file can't be read or written: also for text that isn't UTF-8."""

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
"""How an error begins that Python's sqlite3 raises itself: it has no number."""

_UNUSABLE: Final = frozenset(
    {
        "unsupported file format",
        "attached databases must use the same text encoding as main database",
    }
)
"""Errors of a damaged header that have SQLite's general number."""

_FIX_ACCESS: Final = (
    "see that it and the files beside it (-wal, -shm) may be read, and that the disk answers"
)
_ERRORS_BY_CODE: Final = MappingProxyType(
    {
        sqlite3.SQLITE_BUSY: ("locked", "let go of it: another program has it to itself"),
        sqlite3.SQLITE_LOCKED: ("locked", "let go of it: another program has it to itself"),
        sqlite3.SQLITE_FULL: ("no_space", "make room on its disk, or lower max_size"),
        sqlite3.SQLITE_IOERR: ("io_error", "see the kernel's log for its disk, and its quota"),
        sqlite3.SQLITE_READONLY: ("read_only", "let podgpu write to it and to its folder"),
        sqlite3.SQLITE_PERM: ("permission", _FIX_ACCESS),
        sqlite3.SQLITE_CANTOPEN: ("permission", _FIX_ACCESS),
    }
)
"""By the number of SQLite's error: a word for it, and what to do."""


def open_readonly(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open a ledger to read it. Nothing is ever written, no file beside it either.

    The sink may write meanwhile, may have ended, or may have been killed. A copy of the file alone
    is a ledger too, as it was when its log was last brought into it.

    Args:
        path: the file.

    Returns:
        A connection for the thread that calls; the caller closes it.

    Raises:
        LedgerError: it isn't there, may not be read, or is no ledger of this version.
    """
    place = Path(path)
    name = str(place)
    _check_readable(place)
    try:
        address = _uri(place)
        connection = sqlite3.connect(address, uri=True, timeout=_WAIT, isolation_level=None)
    except READ_ERRORS as error:
        raise to_ledger_error(name, error) from error
    except OSError as error:
        raise LedgerError(name, (error.strerror or str(error)).lower(), _FIX_ACCESS) from error
    try:
        identify(connection, name)
        connection.execute("PRAGMA query_only = 1")
        # A year is added up in memory, and not in files beside.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    except READ_ERRORS as error:
        connection.close()
        raise to_ledger_error(name, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_readable(path: Path) -> None:
    """See that the file is there and may be read, without opening it.

    Where its writer is in this very process, closing it again would drop all locks that SQLite has
    on it there (fcntl(2)): another program would take the file for its own, and remove its log.

    Raises:
        LedgerError: it isn't.
    """
    name, let = str(path), f"let uid {os.geteuid()} read the file and its folder"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mend = "give the path of the sink ledger, and see that it has run"
        raise LedgerError(name, "isn't there", mend) from None
    except (OSError, ValueError) as error:
        saw = getattr(error, "strerror", None) or str(error)
        raise LedgerError(name, saw.lower(), let) from error
    if not stat.S_ISREG(mode):
        saw = "is a directory" if stat.S_ISDIR(mode) else "is no ordinary file"
        raise LedgerError(name, saw, "give the path of the sink ledger")
    if not os.access(path, os.R_OK, effective_ids=True):
        raise LedgerError(name, "permission denied", let)


def _uri(path: Path) -> str:
    """Return the file's address for SQLite.

    Where there is no log, nobody writes: SQLite has to be told so, since it would make one to read
    a file that was written with one. Where there is, the memory that readers and writer share is
    opened to be read alone; without a writer SQLite makes its own of the log.

    Raises:
        LedgerError: SQLite could not read its log.
    """
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    logged = shared.exists()
    if not logged and log.exists() and log.stat().st_size:
        mend = f"give it one, which may be empty: touch {shared}"
        raise LedgerError(str(path), f"was copied with its log, and without {shared.name}", mend)
    how = "mode=ro&readonly_shm=1" if logged else "mode=ro&immutable=1"
    return f"file:{quote(str(path.absolute()), errors='surrogateescape')}?{how}"


def identify(connection: sqlite3.Connection, place: str) -> None:
    """See that it is a ledger of this version, or of an older one.

    Raises:
        CorruptError: it is none, or damaged.
        ForeignError: it is a newer one, or another program's database.
        LedgerError: it can't be read now.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = columns_of(connection)
        kept = stored_version(connection, found)
    except READ_ERRORS as error:
        raise to_ledger_error(place, error) from error
    if application != APPLICATION_ID:
        if columns(1) <= found and _one_byte_off(application):
            saw = "has the tables of a ledger, and its header is damaged"
            raise CorruptError(place, saw, "take a copy of it that is whole", reason="corrupt")
        if found:
            mend = "give another path"
            raise ForeignError(place, "is another program's database", mend)
        raise CorruptError(place, "is empty", "give the path of the sink ledger")
    if not _matches_version(version, kept, found):
        saw = f"says that it is of version {version}, and is not: its header is damaged"
        raise CorruptError(place, saw, "take a copy of it that is whole", reason="corrupt")
    if version > VERSION:
        saw = f"is of version {version}, and this podgpu knows versions up to {VERSION}"
        raise ForeignError(place, saw, "use a newer podgpu, or give another path")
    if missing := columns(version) - found:
        table, column = min(missing)
        saw = f"lacks the column {column} of the table {table}"
        raise CorruptError(place, saw, "give the path of a ledger that is whole")


def _matches_version(version: int, kept: str | None, found: frozenset[tuple[str, str]]) -> bool:
    """Whether a file is of the version that its header tells, by what stands in the file itself.

    Args:
        version: of the header, which is a single byte in practice, and without a checksum.
        kept: of the table `meta`; None where it isn't told there, as in files of podgpu 0.1.0.
        found: the columns of all tables.
    """
    if kept is not None:
        return kept == str(version)
    later = columns() - columns(1)
    return version == VERSION or (version == 1 and not later & found)


def _one_byte_off(application: int) -> bool:
    different = (application ^ APPLICATION_ID) & 0xFFFFFFFF
    return sum(byte > 0 for byte in different.to_bytes(4)) == 1


def to_ledger_error(path: str, error: Exception) -> LedgerError:
    """Return what is wrong with a file, with what to do about it.

    Args:
        path: the file.
        error: one of `READ_ERRORS`.
    """
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    saw = str(error)
    if isinstance(error, UnicodeError) or saw.startswith(_NOT_UTF8):
        return CorruptError(
            path,
            "holds text that isn't UTF-8",
            "take a copy of it that is whole",
            reason="corrupt",
        )
    if code in _CORRUPT or saw in _UNUSABLE:
        return CorruptError(path, saw, "take a copy of it that is whole", reason="corrupt")
    reason, mend = _ERRORS_BY_CODE.get(code, ("other", _FIX_ACCESS))
    return LedgerError(path, saw, mend, reason=reason)
