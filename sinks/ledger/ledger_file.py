"""The writer of the ledger file. All methods block and run in one thread."""

import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipeline.base.clock import boot_id
from pipeline.base.version import VERSION
from pipeline.ledger.archive_backlog import ArchiveBacklog, read_backlog
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.file_open import READ_ERRORS, CorruptError, LedgerError, ledger_errors
from pipeline.ledger.retention import Removed, apply_retention, forget_accounts, remove_orphans
from pipeline.ledger.write_batch import Batch
from pipeline.ledger.writer_open import StoredState, open_readwrite, read_stored_state
from pipeline.model import NS, Instant
from sinks.ledger.options import Options
from sinks.ledger.writer_lock import Lock

_MAX_LOG_BYTES: Final = 64 << 20
"""Maximum size of SQLite's write-ahead log while a reader prevents it from being merged."""

_TEMPORARY: Final = frozenset({"locked", "no_space"})
"""Reasons of errors that can pass without a change of the file."""

_RETENTION_INTERVAL_NS: Final = 60 * NS
_SWEEP_NS: Final = 24 * 3600 * NS
_MAX_CLOCK_STEP_NS: Final = 24 * 3600 * NS
"""Maximum step of the wall clock since podgpu started that counts for the age of data."""

_MAX_QUARANTINED: Final = 3
"""Maximum number of renamed damaged files. A broken disk could otherwise fill up with them, and
podgpu cannot know which of them may be deleted."""

_SUFFIXES: Final = ("-wal", "-shm")


def _quarantine(path: Path, now_ns: int, why: CorruptError) -> Path:
    """Rename a damaged file and its log; return the file's new path.

    Args:
        path: the file, which is not open.
        now_ns: now, in nanoseconds of Unix time.
        why: what is wrong with the file.

    Raises:
        LedgerError: the file cannot be renamed, or there are too many renamed files already.
    """
    pattern = re.compile(re.escape(path.name) + r"\.corrupt-[0-9]{8}T[0-9]{6}Z[a-f]?", re.ASCII)
    try:
        # The oldest first, as their names contain the time.
        existing = sorted(each for each in path.parent.iterdir() if pattern.fullmatch(each.name))
        if len(existing) >= _MAX_QUARANTINED:
            listed = ", ".join(each.name for each in existing)
            fix = f"check its disk; save or remove the files that were renamed before: {listed}"
            raise LedgerError(str(path), why.problem, fix, reason="corrupt")
        stamp = datetime.fromtimestamp(max(now_ns, 0) // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
        taken = {each.name for each in existing}
        names = (f"{path.name}.corrupt-{stamp}{letter}" for letter in ("", *"abcdef"))
        renamed = path.with_name(next(name for name in names if name not in taken))
        # The log first. If this is interrupted, the file is still recognised as damaged.
        for end in _SUFFIXES:
            log = path.with_name(path.name + end)
            if log.exists():
                log.rename(renamed.with_name(renamed.name + end))
        path.rename(renamed)
    except OSError as error:
        fix = "make its folder writable for podgpu, or move the file away"
        problem = f"{why.problem}, and cannot be renamed: {(error.strerror or str(error)).lower()}"
        raise LedgerError(str(path), problem, fix, reason="corrupt") from error
    return renamed


@dataclass(slots=True)
class WriteReport:
    """What happened to the file during an opening or a write.

    Attributes:
        renewed: whether the file may lack data that was written before. Then all data has to be
            written again.
        replaced: whether another program removed or replaced the file or its log.
        quarantined: new path of each damaged file that was renamed, and what is wrong with it.
        removed: data that was removed.
        archive: what is not in the archive yet; None if the ledger has no archive, or it was not
            checked.
        retention_error: why old data could not be removed; None if there was no error.
    """

    renewed: bool = False
    replaced: bool = False
    quarantined: list[tuple[str, str]] = field(default_factory=list)
    removed: Removed = field(default_factory=Removed)
    archive: ArchiveBacklog | None = None
    retention_error: LedgerError | None = None


class LedgerFile:
    """Opens, writes, cleans up and closes a ledger.

    Args:
        options: see `docs/sinks/ledger.md`.
        node: the node's name.
        now: function that returns the current time.
        began: a moment after podgpu started; default: the time of the call. If the wall clock is
            set forward after it, data does not become older by that.

    Attributes:
        boot: the boot id of the machine; empty if unknown.
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
        self._began = began or now()
        self._lock = Lock(options.path)
        self._store: BatchWriter | None = None
        self._open_files: tuple[os.stat_result, ...] = ()
        # Events of failed commits, which are not reported yet.
        self._pending_report = WriteReport()
        self._retention_due_ns = self._sweep_due_ns = 0
        self._sweep_needed = False

    def open(self) -> tuple[StoredState, WriteReport]:
        """Open the file; return the state that it stores, and what happened to the file.

        A damaged file is renamed, and a new one is created.

        Raises:
            ForeignError: the file belongs to another program or to a newer podgpu.
            LedgerError: the file cannot be opened now, or a damaged file cannot be renamed.
        """
        report = WriteReport()
        self.boot = boot_id()
        try:
            return self._read_state(self._open(report), report), report
        except OSError as error:
            self.close()
            raise self._disk_error(error) from error
        except BaseException:
            self.close()
            raise

    def put(self, batch: Batch) -> WriteReport:
        """Write a batch in one transaction. To write the same batch again changes nothing.

        Old data is removed, too, once per minute. Return what happened to the file.

        Raises:
            LedgerError: the batch cannot be written now, and no part of it was written.
        """
        report = self._pending_report
        try:
            self._write(batch, report)
        except OSError as error:
            self._close_connection()
            raise self._disk_error(error) from error
        self._pending_report = WriteReport()
        return report

    def _write(self, batch: Batch, report: WriteReport) -> None:
        if self._store is not None and not self._is_unchanged():
            with contextlib.suppress(*READ_ERRORS):  # merge its log, in case it was renamed
                self._store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._close_connection()
            report.replaced = True
        store = self._store
        if store is None:
            store = self._open(report)
            report.renewed = True
        try:
            self._put(store, batch)
        except CorruptError as error:
            store = self._replace(error, report)
            self._put(store, batch)
        try:
            with ledger_errors(self.path):
                self._apply_retention(store, report)
        except CorruptError as error:
            self._replace(error, report)
        except LedgerError as error:  # some data may have been removed
            report.renewed, report.retention_error = True, error

    def close(self) -> None:
        """Merge the log into the file, close the file, and release the lock."""
        self._close_connection()
        self._lock.release()

    def _open(self, report: WriteReport) -> BatchWriter:
        try:
            self._lock.take()
        except OSError as error:
            # The folder may not be readable, so rely on the error number.
            problem = (
                "the folder does not exist" if error.errno == errno.ENOENT else _describe(error)
            )
            fix = f"create it, or mount it writable for uid {os.geteuid()}; or give another path"
            raise LedgerError(str(self.path.parent), problem, fix, reason="permission") from error
        try:
            return self._connect()
        except CorruptError as error:
            return self._replace(error, report)

    def _connect(self) -> BatchWriter:
        connection = open_readwrite(self.path, self._options.synchronous)
        try:
            with ledger_errors(self.path):
                for each in (("node", self._node), ("podgpu", VERSION)):
                    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", each)
            self._open_files = tuple([each.lstat() for each in self._file_and_log()])
        except (LedgerError, OSError) as error:
            connection.close()
            is_read_only = isinstance(error, LedgerError) and error.reason == "read_only"
            if is_read_only and not _writable_format(self.path):
                raise CorruptError(str(self.path), "its header is damaged") from error
            raise
        self._store = BatchWriter(connection, self.boot)
        return self._store

    def _disk_error(self, error: OSError) -> LedgerError:
        return LedgerError(str(self.path), _describe(error), "check its disk", reason="io_error")

    def _read_state(self, store: BatchWriter, report: WriteReport) -> StoredState:
        try:
            return read_stored_state(store.connection, str(self.path))
        except CorruptError as error:
            self._replace(error, report)
            return StoredState({}, 0, (), {})

    def _replace(self, error: CorruptError, report: WriteReport) -> BatchWriter:
        """Rename a damaged file and create a new one."""
        report.renewed = True
        self._close_connection()
        renamed = _quarantine(self.path, self._now().wall_ns, error)
        report.quarantined.append((str(renamed), error.problem))
        return self._connect()

    def _close_connection(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(*READ_ERRORS):
                store.connection.close()

    def _is_unchanged(self) -> bool:
        """Whether the files at the path and at the path of its log are still the open files.

        Data in a log that no longer has a name is lost when podgpu is killed.
        """
        try:
            files = [each.lstat() for each in self._file_and_log()]
        except OSError:
            return False
        return all(map(os.path.samestat, self._open_files, files))

    def _file_and_log(self) -> tuple[Path, Path]:
        return self.path, self.path.with_name(f"{self.path.name}-wal")

    def _put(self, store: BatchWriter, batch: Batch) -> None:
        try:
            with ledger_errors(self.path):
                self._limit_log(store.connection)
                store.write_batch(batch)
        except LedgerError as error:
            if error.reason not in _TEMPORARY:
                self._close_connection()  # the file may have changed, so open it again
            raise

    def _limit_log(self, connection: sqlite3.Connection) -> None:
        if self._log_bytes() <= _MAX_LOG_BYTES:
            return
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if self._log_bytes() > _MAX_LOG_BYTES:
            problem = (
                "its write-ahead log cannot be merged: another program keeps a transaction open"
            )
            fix = "stop the program that keeps the transaction open (fuser shows it)"
            raise LedgerError(str(self.path), problem, fix, reason="locked")

    def _log_bytes(self) -> int:
        try:
            return self._file_and_log()[1].stat().st_size
        except OSError:
            return 0

    def _apply_retention(self, store: BatchWriter, report: WriteReport) -> None:
        """Remove data that is too old, or exceeds `max_size`, once per `_RETENTION_INTERVAL_NS`."""
        now, connection = self._now(), store.connection
        if now.mono_ns < self._retention_due_ns:
            return
        self._retention_due_ns = now.mono_ns + _RETENTION_INTERVAL_NS
        store.clear_caches()
        size = int(self._options.max_size)
        # Data must not become old because the wall clock is set forward.
        latest_ns = self._began.wall_of(now) + _MAX_CLOCK_STEP_NS
        now_ns = min(now.wall_ns, latest_ns)
        report.removed = apply_retention(connection, now_ns, self._options.keep.ns, size)
        forget_accounts(connection, now, now_ns, self.boot)
        self._sweep_needed = self._sweep_needed or bool(report.removed.before_ns)
        if self._sweep_needed and now.mono_ns >= self._sweep_due_ns:
            report.removed.orphans += remove_orphans(connection)
            self._sweep_due_ns, self._sweep_needed = now.mono_ns + _SWEEP_NS, False
        report.archive = read_backlog(connection, now.wall_ns)
        # If rows of existing containers were removed, they have to be written again.
        report.renewed = report.renewed or bool(report.removed.orphans)


def _writable_format(path: Path) -> bool:
    """Whether SQLite can write the format version in the file's header.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(19)[18:] in {b"\1", b"\2"}


def _describe(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
