"""The ledger's file in the hands of its writer. Everything here blocks, in one thread."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline.base.clock import boot_id
from pipeline.base.version import VERSION
from pipeline.ledger.batch_writer import Store
from pipeline.ledger.errors import CorruptError, LedgerError
from pipeline.ledger.file_creation import StoredState, open_readwrite, read_stored_state
from pipeline.ledger.file_open import READ_ERRORS, to_ledger_error
from pipeline.ledger.retention import Removed, apply_retention, forget_accounts, remove_orphans
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS, Instant
from sinks.ledger.options import Options
from sinks.ledger.quarantine import quarantine
from sinks.ledger.writer_lock import Lock

_LOG_BYTES: Final = 64 << 20
"""How large SQLite's log may grow while a reader keeps it from being brought into the file."""

_PASSING: Final = frozenset({"locked", "no_space"})
"""What passes by itself, with the file as it is."""

_RETENTION_INTERVAL_NS: Final = 60 * NS
_SWEEP_NS: Final = 24 * 3600 * NS
_MAX_CLOCK_STEP_NS: Final = 24 * 3600 * NS
"""How far the wall clock may be set forward, and still be believed for how old something is."""


@dataclass(slots=True)
class WriteReport:
    """What happened to the file.

    Attributes:
        renewed: it is another one than before: all that is known has to be written again.
        replaced: somebody has taken the one before away, or its log.
        quarantined: names of files that were set aside, with what is wrong with each.
        removed: what was let go of.
        retention_error: why nothing could be let go of; None where that is well.
    """

    renewed: bool = False
    replaced: bool = False
    quarantined: list[tuple[str, str]] = field(default_factory=list)
    removed: Removed = field(default_factory=Removed)
    retention_error: LedgerError | None = None


class LedgerFile:
    """Opens, writes, tends and closes a ledger.

    Args:
        options: see `docs/sinks/ledger.md`.
        node: the node's name.
        now: the clocks.
        began: a moment since which podgpu has run; now, if none is given. A wall clock that is set
            forward after that makes nothing old.

    Attributes:
        boot: identifies this boot of the machine; empty where that isn't known.
    """

    def __init__(
        self,
        options: Options,
        node: str,
        now: Callable[[], Instant],
        began: Instant | None = None,
    ) -> None:
        self.path = options.path
        self.boot = ""
        self._options = options
        self._node = node
        self._now = now
        self._first = began or now()
        self._lock = Lock(options.path)
        self._connection: sqlite3.Connection | None = None
        self._store: Store | None = None
        self._mine: tuple[os.stat_result, ...] = ()
        # Of commits that failed: that the file is another one is still to be told.
        self._untold = WriteReport()
        self._tend_ns = self._sweep_ns = 0
        self._unswept = False

    def open(self) -> tuple[StoredState, WriteReport]:
        """Open the file, a new one where it can't be used, and return what is in it.

        Raises:
            ForeignError: it is another program's, or a newer podgpu's.
            LedgerError: it can't be had now.
        """
        report = WriteReport()
        self.boot = boot_id()
        try:
            self._open(report)
            return self._read_left(report), report
        except OSError as error:
            self.close()
            raise self._unreachable(error) from error
        except BaseException:
            self.close()
            raise

    def put(self, batch: Batch) -> WriteReport:
        """Write a batch in one transaction; a second time it changes nothing.

        Raises:
            LedgerError: it can't be written now: nothing of it is.
        """
        report = self._untold
        try:
            self._write(batch, report)
        except OSError as error:
            self._close_connection()
            raise self._unreachable(error) from error
        self._untold = WriteReport()
        return report

    def _write(self, batch: Batch, report: WriteReport) -> None:
        if self._connection is not None and not self._there():
            with contextlib.suppress(*READ_ERRORS):  # its log goes into it, wherever it is now
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._close_connection()
            report.replaced = True
        if self._connection is None:
            self._open(report)
            report.renewed = True
        try:
            self._put(batch)
        except CorruptError as error:
            self._replace(error, report)
            report.renewed = True
            self._put(batch)
        try:
            self._apply_retention(report)
        except READ_ERRORS as cause:
            report.renewed = True  # a part of it may have been done
            found = to_ledger_error(str(self.path), cause)
            if isinstance(found, CorruptError):
                self._replace(found, report)
                report.renewed = True
            else:
                report.retention_error = found

    def close(self) -> None:
        """Close the file, its log brought into it, and let others have it."""
        self._close_connection()
        self._lock.release()

    def _open(self, report: WriteReport) -> None:
        try:
            self._lock.take()
        except OSError as error:
            # Not asked of the folder, which may refuse to tell.
            saw = "there is no such folder" if error.errno == errno.ENOENT else _describe(error)
            mend = f"make it, or mount it writable for uid {os.geteuid()}; or give another path"
            raise LedgerError(str(self.path.parent), saw, mend, reason="permission") from error
        try:
            self._connect()
        except CorruptError as error:
            self._replace(error, report)

    def _connect(self) -> None:
        connection = open_readwrite(self.path, self._options.synchronous)
        try:
            for each in (("node", self._node), ("podgpu", VERSION)):
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", each)
            self._mine = tuple([each.lstat() for each in self._both()])
        except READ_ERRORS as error:
            connection.close()
            found = to_ledger_error(str(self.path), error)
            if found.reason == "read_only" and not _writable_format(self.path):
                saw, mend = "its header is damaged", "take a copy of it that is whole"
                raise CorruptError(str(self.path), saw, mend, reason="corrupt") from error
            raise found from error
        except OSError as error:
            connection.close()
            raise self._unreachable(error) from error
        self._connection, self._store = connection, Store(connection, self.boot)

    def _unreachable(self, error: OSError) -> LedgerError:
        return LedgerError(str(self.path), _describe(error), "see to its disk", reason="io_error")

    def _read_left(self, report: WriteReport) -> StoredState:
        connection = self._connection
        if connection is None:
            raise RuntimeError("the file isn't open")
        try:
            return read_stored_state(connection, str(self.path))
        except CorruptError as error:
            self._replace(error, report)
            return StoredState({}, 0, (), {})

    def _replace(self, error: CorruptError, report: WriteReport) -> None:
        """Begin a new file in the place of one that is spoilt."""
        self._close_connection()
        aside = quarantine(self.path, self._now().wall_ns, error)
        report.quarantined.append((str(aside), error.problem))
        self._connect()

    def _close_connection(self) -> None:
        connection, self._connection, self._store = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(*READ_ERRORS):
                connection.close()

    def _there(self) -> bool:
        """Whether what stands at the path is still the file that is open, and its log too.

        What goes into a log that nobody finds any more is gone when podgpu is killed.
        """
        try:
            both = [each.lstat() for each in self._both()]
        except OSError:
            return False
        return all(map(os.path.samestat, self._mine, both))

    def _both(self) -> tuple[Path, Path]:
        return self.path, self.path.with_name(f"{self.path.name}-wal")

    def _put(self, batch: Batch) -> None:
        if self._store is None or self._connection is None:
            raise RuntimeError("the file isn't open")
        try:
            self._bound_log(self._connection)
            self._store.write_batch(batch)
        except READ_ERRORS as error:
            told = to_ledger_error(str(self.path), error)
            if told.reason not in _PASSING:
                self._close_connection()  # what it is can have changed: it is opened anew
            raise told from error

    def _bound_log(self, connection: sqlite3.Connection) -> None:
        if self._log_bytes() <= _LOG_BYTES:
            return
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if self._log_bytes() > _LOG_BYTES:
            saw = "its log can't be brought into it: somebody reads without an end"
            mend = "end the program that keeps a transaction open (fuser shows which has it)"
            raise LedgerError(str(self.path), saw, mend, reason="locked")

    def _log_bytes(self) -> int:
        try:
            return self._both()[1].stat().st_size
        except OSError:
            return 0

    def _apply_retention(self, report: WriteReport) -> None:
        """Let go of what is old or too much, now and then."""
        now, connection = self._now(), self._connection
        if connection is None or now.mono_ns < self._tend_ns:
            return
        self._tend_ns = now.mono_ns + _RETENTION_INTERVAL_NS
        if self._store is not None:
            self._store.clear_caches()
        size = int(self._options.max_size)
        # A wall clock that is set forward makes nothing old.
        latest_ns = self._first.wall_of(now) + _MAX_CLOCK_STEP_NS
        now_ns = min(now.wall_ns, latest_ns)
        report.removed = apply_retention(connection, now_ns, self._options.keep.ns, size)
        forget_accounts(connection, now, now_ns, self.boot)
        self._unswept = self._unswept or bool(report.removed.before_ns)
        if self._unswept and now.mono_ns >= self._sweep_ns:
            report.removed.orphans += remove_orphans(connection)
            self._sweep_ns, self._unswept = now.mono_ns + _SWEEP_NS, False
        # What is known of a container that is there still goes in again.
        report.renewed = report.renewed or bool(report.removed.orphans)


def _writable_format(path: Path) -> bool:
    """Whether the header names a version of SQLite's format that can be written.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        return file.read(19)[18:] in {b"\1", b"\2"}


def _describe(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
