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
from pipeline.component.shutdown import LAST
from pipeline.component.warnings import warn
from pipeline.delivery.async_wait import first
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.ledger.account_state import rebased
from pipeline.ledger.change_tracker import Book
from pipeline.ledger.errors import ForeignError, LedgerError
from pipeline.ledger.file_creation import Left
from pipeline.ledger.file_open import FAILS, fault, open_readonly
from pipeline.ledger.queries import read_window
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS, Instant, Snapshot, TotalsRestored
from pipeline.model.usage_window import Window
from sinks.ledger.ledger_file import LedgerFile, Report
from sinks.ledger.options import Options
from sinks.ledger.self_report import Telling
from sinks.ledger.writer_lock import LockedError

_OPENING: Final = 3.0
"""Seconds that the file has to open: sinks are entered one after the other."""

_WAITING: Final = 10.0
"""Seconds for which `recall` waits for a file that is slow to open, or that another podgpu is about
to let go of: without it all totals begin anew."""

_SLOW: Final = 10.0
"""Seconds after which a commit that doesn't end is told of."""

_CLOSING: Final = 0.5
_READING: Final = 10.0
_AGAIN: Final = 1.0

_Opened = tuple[Left, Report]


@dataclass(slots=True)
class _Since:
    """What is remembered over reloads: a ledger that goes on in its file has missed nothing.

    Attributes:
        path: the file.
        began: a moment since which podgpu has run.
        born: when the first ledger with this file began.
        unseen: devices of the file that nobody has looked at since then; None until it is open.
    """

    path: Path
    began: Instant
    born: Instant
    unseen: set[str] | None = None


def _since(ctx: SinkContext, path: Path) -> _Since:
    now, kept = ctx.clock.now(), ctx.kept.get("since")
    if isinstance(kept, _Since) and kept.path == path:
        return kept
    ctx.kept["since"] = new = _Since(path, kept.began if isinstance(kept, _Since) else now, now)
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
        self._since = _since(ctx, options.path)
        self._telling = Telling(ctx, str(options.path))
        self._opening: tuple[DaemonExecutor, LedgerFile, Future[_Opened]] | None = None
        self._unwanted: weakref.finalize[..., LedgerSink] | None = None
        self._thread: DaemonExecutor | None = None
        self._file: LedgerFile | None = None
        self._left: Left | None = None
        self._opened = asyncio.Event()
        self._locked = False
        self._boot = ""
        self._book = Book(self._since.born, {})
        self._writing: tuple[Batch, Future[Report]] | None = None
        self._unwritten: Batch | None = None
        self._wanted = asyncio.Event()
        self._readers: DaemonExecutor | None = None
        self._reading: Future[Window] | None = None

    async def __aenter__(self) -> Self:
        """Open the file, and take over the accounts that stand there."""
        if self._opening is None:
            thread = DaemonExecutor(f"podgpu-sink-{self._ctx.name}")
            now, began = self._ctx.clock.now, self._since.began
            file = LedgerFile(self._options, self._ctx.node, now, began)
            self._opening = thread, file, thread.submit(file.open)
            # Whoever is no more wants nothing: what opens then is closed.
            self._unwanted = weakref.finalize(self, _give_up, thread, file)
            self._unwanted.atexit = False
        thread, file, opening = self._opening
        opened = asyncio.wrap_future(opening)
        opened.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            in_time = await first(self._ctx.clock, _OPENING, opened)
        except asyncio.CancelledError:
            await self._abandon(thread, file)
            raise
        if not in_time:
            text = f"{self._options.path}: the file system has not answered yet: see to its disk"
            raise TransientError(text, retry_after=_AGAIN)
        self._settle()
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
        self._telling.reported(report)
        self._telling.unsound(left.unsound)
        self._thread, self._file, self._left = thread, file, left
        self._readers = DaemonExecutor(f"podgpu-sink-{self._ctx.name}-read")
        self._boot = file.boot
        states = {one.device: one for one in self._rebased(left).devices}
        since = self._since
        if since.unseen is None:
            since.unseen = set(states)
        moved = left.moved(states, self._boot)
        self._book = Book(since.born, states, left.going_on, since.unseen, moved)
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
        self._settle()
        await self._close(thread, file)

    def _settle(self) -> None:
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

    async def recall(self) -> TotalsRestored | None:
        """Return the accounts that the file had when it was opened.

        Raises:
            TransientError: it isn't open yet.
        """
        if self._opening is not None or self._locked:
            opened = asyncio.ensure_future(self._opened.wait())
            try:
                await first(self._ctx.clock, _WAITING, opened)
            finally:
                opened.cancel()
        if self._left is None:
            place = self._options.path
            raise TransientError(f"{place}: isn't open yet: its disk is slow, or the log tells why")
        if not self._left.states:
            return None
        return self._rebased(self._left)

    def _rebased(self, left: Left) -> TotalsRestored:
        """Return the accounts of the file with moments of the present monotonic clock."""
        now = self._ctx.clock.now()
        return rebased(left.states.values(), now, left.boots, self._boot, self._since.born)

    async def window(self, start_ns: int, end_ns: int) -> Window:
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
            if await first(self._ctx.clock, _READING, answer):
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
        await self._end()

    @property
    def _pending(self) -> bool:
        return self._writing is not None or self._unwritten is not None or self._book.pending

    def _take(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            self._book.take(snapshot)
            self._telling.booked(self._book)
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
            self._writing = self._begin()
        batch, call = self._writing
        written = asyncio.wrap_future(call)
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not await first(self._ctx.clock, _SLOW, written):
            warn(self._ctx, "%s has taken nothing for %g s", self._options.path, _SLOW)
            await asyncio.wait({written})
        self._writing = None
        try:
            report = written.result()
        except LedgerError as error:
            self._telling.failed(error)
            return False
        self._unwritten = None
        self._telling.written(batch, report)
        if report.renewed:
            self._book.renew()
        return True

    def _begin(self) -> tuple[Batch, Future[Report]]:
        if self._thread is None or self._file is None:
            raise RuntimeError("a commit outside of the sink's context")
        if self._unwritten is None:
            self._unwritten = self._book.cut()
        return self._unwritten, self._thread.submit(self._file.put, self._unwritten)

    async def _end(self) -> None:
        """Commit what is left, unless that takes too long: the next start goes on from before."""
        clock = self._ctx.clock
        until_ns = clock.now().mono_ns + round(LAST * NS)
        while self._pending:
            committing = asyncio.ensure_future(self._commit())
            rest = (until_ns - clock.now().mono_ns) / NS
            if not await first(clock, max(rest, 0), committing):
                committing.cancel()
                warn(self._ctx, "%s: the last commit doesn't end in time", self._options.path)
                return
            if not committing.result():
                return


def _read(path: Path, start_ns: int, end_ns: int) -> Window:
    try:
        with closing(open_readonly(path)) as connection:
            return read_window(connection, start_ns, end_ns)
    except FAILS as error:
        raise fault(str(path), error) from error
    except OSError as error:
        saw = (error.strerror or str(error)).lower()
        raise LedgerError(str(path), saw, "see to its disk") from error


def _give_up(thread: DaemonExecutor, file: LedgerFile) -> None:
    thread.submit(file.close)
    thread.shutdown()
