"""The sink `ledger`."""

import asyncio
import weakref
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.shutdown import STOP_SECONDS
from pipeline.component.warnings import warn
from pipeline.delivery.async_wait import wait_first
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.ledger.account_state import to_current_clock
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.errors import ForeignError, LedgerError
from pipeline.ledger.file_creation import StoredState
from pipeline.ledger.file_open import READ_ERRORS, open_readonly, to_ledger_error
from pipeline.ledger.queries import read_window
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS, Instant, Snapshot, TotalsRestored
from pipeline.model.usage_window import UsageWindow
from sinks.ledger.ledger_file import LedgerFile, WriteReport
from sinks.ledger.options import Options
from sinks.ledger.self_report import LedgerReporter
from sinks.ledger.writer_lock import LockedError

_OPENING: Final = 3.0
"""Seconds that the file has to open: sinks are entered one after the other."""

_WAITING: Final = 10.0
"""Seconds for which `stored_usage` waits for a file that is slow to open, or that another podgpu
is about to close: without it, all totals start at zero."""

_SLOW: Final = 10.0
"""Seconds after which a commit that doesn't end is told of."""

_CLOSING: Final = 0.5
_READING: Final = 10.0
_AGAIN: Final = 1.0

_Opened = tuple[StoredState, WriteReport]


@dataclass(slots=True)
class _RunState:
    """What is remembered over reloads: a ledger that goes on in its file has missed nothing.

    Attributes:
        path: the file.
        began: a moment since which podgpu has run.
        opened_at: when the first ledger with this file began.
        unsampled: devices of the file that nobody has looked at since then; None until it is open.
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


class LedgerSink:
    """Keeps who used how much, and tells of it.

    Snapshots are worked out in the event loop, into what is to be written; a thread writes that in
    one transaction each. What wasn't written is written with what comes next.

    Args:
        options: see `docs/sinks/ledger.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._since = _run_state(ctx, options.path)
        self._reporter = LedgerReporter(ctx, str(options.path))
        self._opening: tuple[DaemonExecutor, LedgerFile, Future[_Opened]] | None = None
        self._unwanted: weakref.finalize[..., LedgerSink] | None = None
        self._thread: DaemonExecutor | None = None
        self._file: LedgerFile | None = None
        self._left: StoredState | None = None
        self._opened = asyncio.Event()
        self._locked = False
        self._boot = ""
        self._book = LedgerAccumulator(self._since.opened_at, {})
        self._writing: tuple[Batch, Future[WriteReport]] | None = None
        self._unwritten: Batch | None = None
        self._wanted = asyncio.Event()
        self._readers: DaemonExecutor | None = None
        self._reading: Future[UsageWindow] | None = None

    async def __aenter__(self) -> Self:
        """Open the file, and take over the accounts that stand there."""
        if self._opening is None:
            thread = DaemonExecutor(f"podgpu-sink-{self._ctx.name}")
            now, began = self._ctx.clock.now, self._since.began
            file = LedgerFile(self._options, self._ctx.node, now, began)
            self._opening = thread, file, thread.submit(file.open)
            # Whoever is no more wants nothing: what opens then is closed.
            self._unwanted = weakref.finalize(self, _close_later, thread, file)
            self._unwanted.atexit = False
        thread, file, opening = self._opening
        opened = asyncio.wrap_future(opening)
        opened.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            in_time = await wait_first(self._ctx.clock, _OPENING, opened)
        except asyncio.CancelledError:
            await self._abandon(thread, file)
            raise
        if not in_time:
            text = f"{self._options.path}: the file system has not answered yet: see to its disk"
            raise TransientError(text, retry_after=_AGAIN)
        self._forget_opening()
        try:
            left, report = opening.result()
        except Exception as error:
            thread.shutdown()
            if not isinstance(error, LedgerError):
                raise
            if isinstance(error, ForeignError):
                raise PermanentError(str(error)) from error
            self._locked = isinstance(error, LockedError)
            raise TransientError(
                str(error), retry_after=_AGAIN if self._locked else None
            ) from error
        self._reporter.on_report(report)
        self._reporter.on_invalid(left.invalid)
        self._thread, self._file, self._left = thread, file, left
        self._readers = DaemonExecutor(f"podgpu-sink-{self._ctx.name}-read")
        self._boot = file.boot
        states = {one.device: one for one in self._rebased(left).devices}
        since = self._since
        if since.unsampled is None:
            since.unsampled = set(states)
        moved = left.shifted_devices(states, self._boot)
        self._book = LedgerAccumulator(
            since.opened_at, states, left.open_holdings, since.unsampled, moved
        )
        self._unwritten = self._writing = None
        self._opened.set()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close the file after the commit that it is in, unless that takes too long."""
        thread, file, readers = self._thread, self._file, self._readers
        self._thread = self._file = self._left = self._readers = None
        self._opened.clear()
        if readers is not None:
            readers.shutdown()
        if thread is not None and file is not None:
            await self._close(thread, file)

    async def _abandon(self, thread: DaemonExecutor, file: LedgerFile) -> None:
        """Close what is being opened, so that a podgpu that ends leaves no log beside it."""
        self._forget_opening()
        await self._close(thread, file)

    def _forget_opening(self) -> None:
        """Forget the opening: what it comes to is in other hands."""
        self._opening = None
        if self._unwanted is not None:
            self._unwanted.detach()

    async def _close(self, thread: DaemonExecutor, file: LedgerFile) -> None:
        thread.submit(file.close)
        closed = asyncio.get_running_loop().run_in_executor(thread, lambda: None)
        thread.shutdown()
        done, _ = await asyncio.wait({closed}, timeout=_CLOSING)
        if not done:
            closed.cancel()  # it is closed all the same, once the call has ended
            warn(self._ctx, "gave up on %s: the last call doesn't end", self._options.path)

    async def stored_usage(self) -> TotalsRestored | None:
        """Return the accounts that the file had when it was opened.

        Raises:
            TransientError: it isn't open yet.
        """
        if self._opening is not None or self._locked:
            opened = asyncio.ensure_future(self._opened.wait())
            try:
                await wait_first(self._ctx.clock, _WAITING, opened)
            finally:
                opened.cancel()
        if self._left is None:
            place = self._options.path
            raise TransientError(f"{place}: isn't open yet: its disk is slow, or the log tells why")
        if not self._left.accounts:
            return None
        return self._rebased(self._left)

    def _rebased(self, left: StoredState) -> TotalsRestored:
        """Return the accounts of the file with moments of the present monotonic clock."""
        now = self._ctx.clock.now()
        return to_current_clock(
            left.accounts.values(), now, left.boots, self._boot, self._since.opened_at
        )

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        """Return what was used in a span of time, as far as it is written."""
        place = str(self._options.path)
        if self._readers is None:
            raise TransientError(f"{place}: isn't open: the log tells why")
        if self._reading is not None and not self._reading.done():
            text = (
                f"{place}: is still being read for who asked before: if that lasts, see to its disk"
            )
            raise TransientError(text)
        self._reading = self._readers.submit(_read, self._options.path, start_ns, end_ns)
        answer = asyncio.wrap_future(self._reading)
        try:
            if await wait_first(self._ctx.clock, _READING, answer):
                return answer.result()
        except LedgerError as error:
            raise TransientError(str(error)) from error
        finally:
            answer.cancel()
        raise TransientError(f"{place}: has not answered for {_READING:g} s: see to its disk")

    async def run(self, inbox: SinkInbox) -> None:
        """Write until the inbox ends, and then what is left."""
        self._take(self._ctx.latest())
        async with asyncio.TaskGroup() as group:
            committing = group.create_task(self._keep_committing())
            async for snapshot in inbox:
                self._take(snapshot)
            committing.cancel()
        await self._final_commit()

    @property
    def _pending(self) -> bool:
        return self._writing is not None or self._unwritten is not None or self._book.has_pending

    def _take(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            self._book.add_snapshot(snapshot)
            self._reporter.on_accumulated(self._book)
        if self._pending:
            self._wanted.set()

    async def _keep_committing(self) -> None:
        """Commit what there is, once in each interval."""
        clock, due_ns = self._ctx.clock, 0
        while True:
            await self._wanted.wait()
            await clock.sleep(max((due_ns - clock.now().mono_ns) / NS, 0))
            due_ns = clock.now().mono_ns + self._options.commit_interval.ns
            await self._commit()
            if not self._pending:
                self._wanted.clear()

    async def _commit(self) -> bool:
        """Write a batch, or wait for the one that is being written; return whether it worked.

        One whose end isn't known is never followed by another: it is tried again as it is, and the
        file knows whether it has it.
        """
        if self._writing is None:
            self._writing = self._start_commit()
        batch, call = self._writing
        written = asyncio.wrap_future(call)
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not await wait_first(self._ctx.clock, _SLOW, written):
            warn(self._ctx, "%s has taken nothing for %g s", self._options.path, _SLOW)
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
            self._book.rewrite_all()
        return True

    def _start_commit(self) -> tuple[Batch, Future[WriteReport]]:
        if self._thread is None or self._file is None:
            raise RuntimeError("a commit outside of the sink's context")
        if self._unwritten is None:
            self._unwritten = self._book.take_batch()
        return self._unwritten, self._thread.submit(self._file.put, self._unwritten)

    async def _final_commit(self) -> None:
        """Commit what is left, unless that takes too long: the next start goes on from before."""
        clock = self._ctx.clock
        until_ns = clock.now().mono_ns + round(STOP_SECONDS * NS)
        while self._pending:
            committing = asyncio.ensure_future(self._commit())
            rest = (until_ns - clock.now().mono_ns) / NS
            if not await wait_first(clock, max(rest, 0), committing):
                committing.cancel()
                warn(self._ctx, "%s: the last commit doesn't end in time", self._options.path)
                return
            if not committing.result():
                return


def _read(path: Path, start_ns: int, end_ns: int) -> UsageWindow:
    try:
        with closing(open_readonly(path)) as connection:
            return read_window(connection, start_ns, end_ns)
    except READ_ERRORS as error:
        raise to_ledger_error(str(path), error) from error
    except OSError as error:
        saw = (error.strerror or str(error)).lower()
        raise LedgerError(str(path), saw, "see to its disk") from error


def _close_later(thread: DaemonExecutor, file: LedgerFile) -> None:
    thread.submit(file.close)
    thread.shutdown()
