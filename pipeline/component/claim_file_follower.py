"""Follows a file of claims: emits claims that change, and confirms claims that stay equal."""

import asyncio
from contextlib import ExitStack

from pipeline.component.claim_file_options import ClaimFileOptions
from pipeline.component.claim_file_reader import (
    ClaimFileReader,
    FileClaims,
    FileFault,
    Outcome,
    Read,
)
from pipeline.component.contracts import SourceContext
from pipeline.files.bounded_read import run_in_executor
from pipeline.files.file_watch import Watcher
from pipeline.model import NS, ClaimsReplaced, SourceLost

# While a writer truncates and writes a file, or deletes and recreates it, the file is invalid for a
# moment. A fault counts once the file has not changed for _QUIET_NS, or after _FAULT_DELAY_NS.
_QUIET_NS = NS // 10
_FAULT_DELAY_NS = NS


async def follow(
    ctx: SourceContext,
    options: ClaimFileOptions,
    read: Read,
    *,
    absent: str = "",
    follow_hints: bool = False,
) -> None:
    """Emit a file's claims when they change, and confirm them at each `interval`, until cancelled.

    If the file becomes missing or invalid, emit `SourceLost` and continue to check it. The last
    valid claims then stay valid without confirmation until they are older than `max_age`.

    Args:
        ctx: the source's context.
        options: the file, and how to follow it.
        read: converts the content of the whole file to claims; runs in a thread.
        absent: how to fix a missing file; podgpu adds it to the message.
        follow_hints: whether to check the file and confirm the claims immediately after a hint
            of the join about claims of another source.
    """
    with Watcher(options.path) as watcher, ExitStack() as stack:
        reader = ClaimFileReader(options.path, options.max_size, read, watcher, absent)
        # One call: at a start, claims that came after the first readings would leave these without
        # a pod for a moment.
        read_file = run_in_executor(reader.read)
        report = _Reporter(ctx, options)
        if follow_hints:
            stack.callback(asyncio.create_task(_take_hints(ctx, watcher, report)).cancel)
        changed = True
        while True:
            watcher.open()
            watcher.forget()
            start_ns = ctx.clock.now().mono_ns
            outcome = await read_file(changed)
            took_ns = ctx.clock.now().mono_ns - start_ns
            watcher.log_state(ctx.log)
            wait = await report.file(outcome, changed)
            pause_end_ns = ctx.clock.now().mono_ns + took_ns
            changed = await watcher.wait(wait)
            # If the file is written all the time, reading it takes at most half of a CPU core.
            if (rest_ns := pause_end_ns - ctx.clock.now().mono_ns) > 0:
                await ctx.clock.sleep(rest_ns / NS)


async def _take_hints(ctx: SourceContext, watcher: Watcher, report: "_Reporter") -> None:
    async for hint in ctx.hints():
        if hint.sources - {ctx.name}:
            report.confirm_now = True
            watcher.wake()


class _Reporter:
    """Turns results of reads into events, and logs each change of state once.

    Attributes:
        confirm_now: whether to confirm the claims at the next read, because of a hint of the join.
    """

    def __init__(self, ctx: SourceContext, options: ClaimFileOptions) -> None:
        self._ctx = ctx
        self._options = options
        self.confirm_now = False
        self._emitted: ClaimsReplaced | None = None
        self._due_ns = 0
        self._fault = ""
        self._fault_since_ns: int | None = None
        self._changed_ns = 0
        self._problems: tuple[str, ...] = ()

    async def file(self, outcome: Outcome, changed: bool) -> float:
        """Emit the events for a read; return the seconds until the next read.

        Args:
            outcome: the result of the read.
            changed: whether the file was read because it may have changed.
        """
        now = self._ctx.clock.now().mono_ns
        if isinstance(outcome, FileFault):
            return await self._bad(outcome.text, changed, now)
        await self._good(outcome, now)
        return max(self._due_ns - self._ctx.clock.now().mono_ns, 0) / NS

    async def _good(self, listed: FileClaims, now: int) -> None:
        self._fault_since_ns = None
        event = self._emitted
        fresh = event is None or listed.claims is not event.claims
        if fresh:
            event = ClaimsReplaced(listed.claims, self._options.max_age.ns)
        recovered, self._fault = bool(self._fault), ""
        if event is not None and (fresh or recovered or self.confirm_now or now >= self._due_ns):
            self._emitted, self.confirm_now = event, False
            self._due_ns = now + self._options.interval.ns
            await self._ctx.emit(event)
        if recovered:
            self._ctx.log.info("%s is readable and valid again", self._options.path)
        if listed.problems != self._problems:
            for problem in listed.problems:
                if problem not in self._problems:
                    self._ctx.log.warning("%s; the entry is skipped", problem)
            if not listed.problems:
                self._ctx.log.info("%s: all entries are valid again", self._options.path)
            self._problems = listed.problems

    async def _bad(self, text: str, changed: bool, now: int) -> float:
        if text == self._fault:
            self._fault_since_ns = None
            return float(self._options.interval)
        if self._fault_since_ns is None:
            self._fault_since_ns = self._changed_ns = now
        elif changed:
            self._changed_ns = now
        ends_ns = min(self._changed_ns + _QUIET_NS, self._fault_since_ns + _FAULT_DELAY_NS)
        if now < ends_ns:
            return (ends_ns - now) / NS
        self._fault_since_ns = None
        self._fault = text
        if self._emitted is None:
            self._ctx.log.warning("%s; no valid content has been read yet", text)
        else:
            self._ctx.log.warning(
                "%s; the last valid content stays in use for %s", text, self._options.max_age
            )
        await self._ctx.emit(SourceLost(text))
        return float(self._options.interval)
