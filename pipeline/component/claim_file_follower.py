"""Follows a file of claims: told at once when it changes, confirmed in between, never withdrawn."""

import asyncio
from pathlib import Path
from typing import Protocol

from config.value_types import ByteSize, Duration
from pipeline.component.claim_file_reader import ClaimsFileReader, Fault, FileClaims, Outcome, Read
from pipeline.component.contracts import SourceContext
from pipeline.files.file_watch import Watcher
from pipeline.model import NS, ClaimsReplaced, SourceLost

# A writer that truncates and writes, or deletes and creates, is between the two for a moment: a
# fault counts once nothing has changed for a while, or if changes bring no good list for long.
_QUIET_NS = NS // 10
_FAULT_DELAY_NS = NS


class FileOptions(Protocol):
    """What the options of such a source have in common."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def max_age(self) -> Duration:
        """How long the last good list stands."""
        ...

    @property
    def interval(self) -> Duration:
        """How often the list is confirmed and the file looked at."""
        ...

    @property
    def max_size(self) -> ByteSize:
        """A larger file is not read."""
        ...


async def follow(
    ctx: SourceContext,
    options: FileOptions,
    read: Read,
    *,
    absent: str = "",
    follow_hints: bool = False,
) -> None:
    """Emit a file's claims on every change and confirm them in between, until cancelled.

    Faults of the file don't end it: the last good list stands, unconfirmed, until it is too old.

    Args:
        ctx: the source's context.
        options: which file, and how.
        read: makes claims of the whole file; runs in a thread.
        absent: what helps when there is no such file.
        follow_hints: look at the file and confirm the claims at once, too, when the join hints that
            the claims of another source changed something.
    """
    with Watcher(options.path) as watcher:
        looker = ClaimsFileReader(options.path, options.max_size, read, watcher, absent)
        report = _Reporter(ctx, options)
        hints = asyncio.create_task(_take_hints(ctx, watcher, report)) if follow_hints else None
        try:
            await _follow(ctx, watcher, looker, report)
        finally:
            if hints is not None:
                hints.cancel()


async def _follow(
    ctx: SourceContext, watcher: Watcher, looker: ClaimsFileReader, report: "_Reporter"
) -> None:
    changed = True
    while True:
        watcher.open()
        watcher.forget()
        begun = ctx.clock.now().mono_ns
        outcome = await asyncio.to_thread(looker.read, changed)
        took = ctx.clock.now().mono_ns - begun
        watcher.log_state(ctx.log)
        wait = watcher.max_wait(await report.file(outcome, changed))
        rested = ctx.clock.now().mono_ns + took
        changed = await watcher.wait(wait)
        # A writer that never stops gets at most half of a core, however large the file.
        if (rest := rested - ctx.clock.now().mono_ns) > 0:
            await ctx.clock.sleep(rest / NS)


async def _take_hints(ctx: SourceContext, watcher: Watcher, report: "_Reporter") -> None:
    async for hint in ctx.hints():
        if hint.sources - {ctx.name}:
            report.asked = True
            watcher.wake()


class _Reporter:
    """Turns what was seen into events and into one message per change of state.

    Attributes:
        asked: somebody wants to know whether the claims still stand.
    """

    def __init__(self, ctx: SourceContext, options: FileOptions) -> None:
        self._ctx = ctx
        self._options = options
        self._interval_ns = options.interval.ns
        self.asked = False
        self._said: ClaimsReplaced | None = None
        self._due_ns = 0
        self._fault = ""
        self._doubt: _PendingFault | None = None
        self._complaints: tuple[str, ...] = ()

    async def file(self, outcome: Outcome, changed: bool) -> float:
        """Emit what follows from a look; return the seconds until the next one.

        Args:
            outcome: what the look found.
            changed: it was taken because something had changed.
        """
        now = self._ctx.clock.now().mono_ns
        if isinstance(outcome, Fault):
            return await self._bad(outcome.text, changed, now)
        await self._good(outcome, now)
        return max(self._due_ns - self._ctx.clock.now().mono_ns, 0) / NS

    async def _good(self, listed: FileClaims, now: int) -> None:
        self._doubt = None
        said = self._said
        fresh = said is None or listed.claims is not said.claims
        if fresh:
            said = ClaimsReplaced(listed.claims, self._options.max_age.ns)
        recovered, self._fault = bool(self._fault), ""
        if said is not None and (fresh or recovered or self.asked or now >= self._due_ns):
            self._said, self.asked = said, False
            self._due_ns = now + self._interval_ns
            await self._ctx.emit(said)
        if recovered:
            self._ctx.log.info("%s: is good again", self._options.path)
        if listed.problems != self._complaints:
            for complaint in listed.problems:
                if complaint not in self._complaints:
                    self._ctx.log.warning("%s; left out", complaint)
            if not listed.problems:
                self._ctx.log.info("%s: every entry is good again", self._options.path)
            self._complaints = listed.problems

    async def _bad(self, text: str, changed: bool, now: int) -> float:
        if text == self._fault:
            self._doubt = None
            return float(self._options.interval)
        if self._doubt is None:
            self._doubt = _PendingFault(now)
        elif changed:
            self._doubt.touched_ns = now
        if (left := self._doubt.ends_ns - now) > 0:
            return left / NS
        self._doubt = None
        self._fault = text
        if self._said is None:
            self._ctx.log.warning("%s; no list has been read yet", text)
        else:
            self._ctx.log.warning(
                "%s; the last good list stands for %s", text, self._options.max_age
            )
        await self._ctx.emit(SourceLost(text))
        return float(self._options.interval)


class _PendingFault:
    """The file was found at fault, too short a time ago to say so."""

    def __init__(self, now: int) -> None:
        self._begun_ns = now
        self.touched_ns = now

    @property
    def ends_ns(self) -> int:
        """When the fault counts, if it is still there."""
        return min(self.touched_ns + _QUIET_NS, self._begun_ns + _FAULT_DELAY_NS)
