"""The sink `ledger`."""

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.shutdown import STOP_SECONDS
from pipeline.component.warnings import warn
from pipeline.delivery.async_wait import wait_first
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.ledger.account_state import to_current_clock
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_open import ForeignError, LedgerError, ledger_errors, open_readonly
from pipeline.ledger.queries import read_hours, read_window
from pipeline.ledger.write_batch import Batch
from pipeline.ledger.writer_open import StoredState
from pipeline.model import NS, Instant, Snapshot, TotalsRestored
from pipeline.model.ledger_usage import HourTotal, UsageWindow
from sinks.ledger.ledger_file import LedgerFile, WriteReport
from sinks.ledger.options import Options
from sinks.ledger.self_report import LedgerReporter

T = TypeVar("T")
_Query: TypeAlias = Callable[[Connection, int, int], T]

_OPEN_TIMEOUT: Final = 3.0
"""Seconds until opening the file counts as failed: sinks are started one after the other."""

_STORED_USAGE_TIMEOUT: Final = 10.0
"""Seconds that `stored_usage` waits for a file that opens slowly, or that another podgpu is about
to close. Without the file, all totals start at zero."""

_COMMIT_WARNING_SECONDS: Final = 10.0
"""Seconds after which podgpu logs that a commit has not finished."""

_CLOSE_TIMEOUT: Final = 0.5
_QUERY_TIMEOUT: Final = 10.0
_RETRY_SECONDS: Final = 1.0

_Opened = tuple[StoredState, WriteReport]


@dataclass(slots=True)
class _RunState:
    """State that is kept over a reload, so that a reload does not record a gap.

    Attributes:
        path: the file.
        began: when the first sink of this name was created.
        opened_at: when the first sink of this name with this file was created.
        unsampled: devices of the file without a sample since `opened_at`; None before the file is
            opened.
    """

    path: Path
    began: Instant
    opened_at: Instant
    unsampled: set[str] | None = None


def _run_state(ctx: SinkContext, path: Path) -> _RunState:
    now, kept = ctx.clock.now(), ctx.restart_state.get("since")
    if isinstance(kept, _RunState) and kept.path == path:
        return kept
    ctx.restart_state["since"] = new = _RunState(
        path, kept.began if isinstance(kept, _RunState) else now, now
    )
    return new


class _OpenFile(NamedTuple):
    """The open file, its state when it was opened, and the threads that write and read it."""

    thread: DaemonExecutor
    file: LedgerFile
    stored: StoredState
    readers: DaemonExecutor


class LedgerSink:
    """Stores usage and holdings, and responds to queries about them.

    What has to be written is calculated from snapshots, and a thread writes it, in one transaction
    per batch. Data that could not be written is written with the next batch.

    Args:
        options: see `docs/sinks/ledger.md`.
        ctx: the context of the sink.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._run = _run_state(ctx, options.path)
        self._reporter = LedgerReporter(ctx, str(options.path))
        self._opening: tuple[DaemonExecutor, LedgerFile, Future[_Opened]] | None = None
        self._finalizer: weakref.finalize[..., LedgerSink] | None = None
        self._open: _OpenFile | None = None
        self._opened = asyncio.Event()
        self._locked = False
        self._accumulator = LedgerAccumulator(self._run.opened_at, {})
        self._writing: tuple[Batch, Future[WriteReport]] | None = None
        self._unwritten: Batch | None = None
        self._commit_wanted = asyncio.Event()
        self._query: Future[Any] | None = None

    async def __aenter__(self) -> Self:
        """Open the file, and continue the accounts that are stored in it.

        An opening that takes too long continues, and the next call waits for it.

        Raises:
            PermanentError: the file belongs to another program or to a newer podgpu.
            TransientError: the file cannot be opened now, or not in time.
        """
        if self._opening is None:
            thread = DaemonExecutor(f"podgpu-sink-{self._ctx.name}")
            now, began = self._ctx.clock.now, self._run.began
            file = LedgerFile(self._options, self._ctx.node, now, began)
            self._opening = thread, file, thread.submit(file.open)
            # If the sink is garbage-collected first, close the file that is being opened.
            self._finalizer = weakref.finalize(self, _close_later, thread, file)
            self._finalizer.atexit = False
        thread, file, opening = self._opening
        opened = asyncio.wrap_future(opening)
        opened.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            in_time = await wait_first(self._ctx.clock, _OPEN_TIMEOUT, opened)
        except asyncio.CancelledError:
            # Close it, so that no log is left when podgpu ends.
            self._forget_opening()
            await self._close(thread, file)
            raise
        if not in_time:
            text = f"{self._options.path}: the file system does not respond: check its disk"
            raise TransientError(text, retry_after=_RETRY_SECONDS)
        self._forget_opening()
        try:
            stored, report = opening.result()
        except Exception as error:
            thread.shutdown()
            if not isinstance(error, LedgerError):
                raise
            if isinstance(error, ForeignError):
                raise PermanentError(str(error)) from error
            self._locked = error.reason == "locked"
            raise TransientError(
                str(error), retry_after=_RETRY_SECONDS if self._locked else None
            ) from error
        self._reporter.on_report(report)
        self._reporter.on_invalid(stored.invalid)
        readers = DaemonExecutor(f"podgpu-sink-{self._ctx.name}-read")
        self._open = opened_file = _OpenFile(thread, file, stored, readers)
        states = {one.device: one for one in self._on_current_clock(opened_file).devices}
        run = self._run
        if run.unsampled is None:
            run.unsampled = set(states)
        shifted = stored.shifted_devices(states, file.boot)
        self._accumulator = LedgerAccumulator(
            run.opened_at,
            states,
            stored.open_holdings,
            run.unsampled,
            shifted,
            is_sample=stored.is_sample,
        )
        self._unwritten = self._writing = None
        self._opened.set()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the file after the current commit; do not wait longer than a time limit."""
        opened, self._open = self._open, None
        self._opened.clear()
        if opened is not None:
            opened.readers.shutdown()
            await self._close(opened.thread, opened.file)

    def _forget_opening(self) -> None:
        """Forget the opening, because its result is used or the file is closed elsewhere."""
        self._opening = None
        if self._finalizer is not None:
            self._finalizer.detach()

    async def _close(self, thread: DaemonExecutor, file: LedgerFile) -> None:
        thread.submit(file.close)
        closed = asyncio.get_running_loop().run_in_executor(thread, lambda: None)
        thread.shutdown()
        done, _ = await asyncio.wait({closed}, timeout=_CLOSE_TIMEOUT)
        if not done:
            closed.cancel()  # the file is closed anyway, once the call returns
            text = "no longer waiting until %s is closed: the last file operation does not return"
            warn(self._ctx, text, self._options.path)

    async def stored_usage(self) -> TotalsRestored | None:
        """Return the accounts that were in the file when it was opened; None if it had none.

        Raises:
            TransientError: the file is not open yet.
        """
        if self._opening is not None or self._locked:
            opened = asyncio.ensure_future(self._opened.wait())
            try:
                await wait_first(self._ctx.clock, _STORED_USAGE_TIMEOUT, opened)
            finally:
                opened.cancel()
        if self._open is None:
            name = self._options.path
            text = f"{name} is not open yet: see the log for the reason, or check its disk"
            raise TransientError(text)
        if not self._open.stored.accounts:
            return None
        return self._on_current_clock(self._open)

    def _on_current_clock(self, opened: _OpenFile) -> TotalsRestored:
        """Return the stored accounts, converted to the current monotonic clock."""
        now, stored = self._ctx.clock.now(), opened.stored
        return to_current_clock(
            stored.accounts.values(), now, stored.boots, opened.file.boot, self._run.opened_at
        )

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        """Return the usage in a span of time, as far as it has been written.

        Args:
            start_ns: start of the span, in nanoseconds of Unix time.
            end_ns: end of the span, in nanoseconds of Unix time.

        Raises:
            TransientError: the file is not open or cannot be read, the previous query is still
                running, or there is no response in time.
        """
        return await self._ask(read_window, start_ns, end_ns)

    async def hours(self, start_ns: int, end_ns: int) -> tuple[HourTotal, ...]:
        """Return the total usage of each hour in a span of time, as far as it has been written.

        Arguments and errors are those of `window`.
        """
        return await self._ask(read_hours, start_ns, end_ns)

    async def _ask(self, query: _Query[T], start_ns: int, end_ns: int) -> T:
        name = str(self._options.path)
        if self._open is None:
            raise TransientError(f"{name} is not open: see the log for the reason")
        if self._query is not None and not self._query.done():
            text = f"{name}: a previous query is still running; if this lasts, check its disk"
            raise TransientError(text)
        work = partial(_read, self._options.path, query, start_ns, end_ns)
        running = self._open.readers.submit(work)
        self._query = running
        response = asyncio.wrap_future(running)
        try:
            if await wait_first(self._ctx.clock, _QUERY_TIMEOUT, response):
                return response.result()
        except LedgerError as error:
            raise TransientError(str(error)) from error
        finally:
            response.cancel()
        raise TransientError(f"{name} has not responded for {_QUERY_TIMEOUT:g} s: check its disk")

    async def run(self, inbox: SinkInbox) -> None:
        """Write snapshots until the inbox ends; then write the data that is left."""
        self._take(self._ctx.latest())
        async with asyncio.TaskGroup() as group:
            committing = group.create_task(self._keep_committing())
            async for snapshot in inbox:
                self._take(snapshot)
            committing.cancel()
        await self._final_commit()

    @property
    def _pending(self) -> bool:
        return (
            self._writing is not None
            or self._unwritten is not None
            or self._accumulator.has_pending
        )

    def _take(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            self._accumulator.add_snapshot(snapshot)
            self._reporter.on_accumulated(self._accumulator)
        if self._pending:
            self._commit_wanted.set()

    async def _keep_committing(self) -> None:
        """Commit unwritten data, at most once per `commit_interval`."""
        clock, due_ns = self._ctx.clock, 0
        while True:
            await self._commit_wanted.wait()
            await clock.sleep(max((due_ns - clock.now().mono_ns) / NS, 0))
            due_ns = clock.now().mono_ns + self._options.commit_interval.ns
            await self._commit()
            if not self._pending:
                self._commit_wanted.clear()

    async def _commit(self) -> bool:
        """Write a batch, or wait for the one that is being written; return whether it succeeded.

        If the result of a batch is unknown, the same batch is written again, and not another one.
        A token in the file shows whether it was written already.
        """
        if self._writing is None:
            self._writing = self._start_commit()
        batch, call = self._writing
        written = asyncio.wrap_future(call)
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not await wait_first(self._ctx.clock, _COMMIT_WARNING_SECONDS, written):
            text = "a commit to %s has not finished for %g s; podgpu waits for it; check its disk"
            warn(self._ctx, text, self._options.path, _COMMIT_WARNING_SECONDS)
            await asyncio.wait({written})
        self._writing = None
        try:
            report = written.result()
        except LedgerError as error:
            self._reporter.on_failure(error)
            return False
        self._unwritten = None
        self._reporter.on_written(batch, report)
        if report.renewed:
            self._accumulator.rewrite_all()
        return True

    def _start_commit(self) -> tuple[Batch, Future[WriteReport]]:
        if self._open is None:
            raise RuntimeError("a commit is possible only while the sink is open")
        if self._unwritten is None:
            self._unwritten = self._accumulator.take_batch()
        return self._unwritten, self._open.thread.submit(self._open.file.put, self._unwritten)

    async def _final_commit(self) -> None:
        """Commit the data that is left, within a time limit."""
        clock = self._ctx.clock
        until_ns = clock.now().mono_ns + round(STOP_SECONDS * NS)
        while self._pending:
            committing = asyncio.ensure_future(self._commit())
            remaining = (until_ns - clock.now().mono_ns) / NS
            if not await wait_first(clock, max(remaining, 0), committing):
                committing.cancel()
                text = "%s: the last commit did not finish in time; its usage may become a gap"
                warn(self._ctx, text, self._options.path)
                return
            if not committing.result():
                return


def _read(path: Path, query: _Query[T], start_ns: int, end_ns: int) -> T:
    try:
        with ledger_errors(path), closing(open_readonly(path)) as connection:
            return query(connection, start_ns, end_ns)
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise LedgerError(str(path), problem, "check its disk") from error


def _close_later(thread: DaemonExecutor, file: LedgerFile) -> None:
    thread.submit(file.close)
    thread.shutdown()
