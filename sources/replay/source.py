"""The source `replay`."""

import asyncio
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import NS, Instant, TotalsRestored
from pipeline.recording import Header, RecordingError, RecordingReader
from sources.replay.options import DEMO, Options
from sources.replay.recording_pass import ReplayPass
from sources.replay.time_mapping import Timeline

_DEMO_FILE: Final = Path(__file__).with_name("demo.podgpu.gz")
_KIND = "replay"
_AGAIN: Final = 60.0
"""Seconds until what is damaged is played again: it may have been recorded anew."""


class ReplaySource:
    """Hands on what a recording holds, under the names of the sources that said it.

    Args:
        options: see `docs/sources/replay.md`.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._demo = options.path == DEMO
        self._path = _DEMO_FILE if self._demo else Path(options.path)

    async def run(self, ctx: SourceContext) -> None:
        """Play until the end of the recording, or for ever."""
        began, first = ctx.clock.now(), True
        while True:
            try:
                ended = await self._play(ctx, began, told=not first)
            except RecordingError as error:
                if self._demo:
                    raise PermanentError(f"{error}; or install podgpu anew") from error
                # Others go on: a damaged file is no wrong configuration.
                raise TransientError(str(error), retry_after=_AGAIN) from error
            except OSError as error:
                raise self._unreadable(error) from error
            if not self._options.loop:
                break
            await _until(ctx, ended)
            # Who fell behind goes on from now, instead of rushing through what should have been.
            now = ctx.clock.now()
            began = ended if now.mono_ns - ended.mono_ns < NS else now
            first = False
        ctx.log.info("%s has ended; what it told stands until it is out of date", self._path)

    async def _play(self, ctx: SourceContext, began: Instant, *, told: bool) -> Instant:
        """Play once; return when the next pass starts."""

        def timed(header: Header) -> Timeline:
            original = self._options.time == "original"
            return Timeline(header.started, began, self._options.speed, original=original)

        reading = ReplayPass(self._path, timed)
        try:
            batch = await asyncio.to_thread(reading.read)
            if not told:
                self._announce(ctx, reading.reader.header)
            while batch:
                for envelope in batch:
                    if envelope.kind == _KIND:
                        continue  # what it relayed was recorded; it has no word of its own
                    if told and isinstance(envelope.event, TotalsRestored):
                        continue  # its holdings go on, or are over, since the first pass
                    # Each event has a place of its own on the clock: lateness doesn't add up.
                    await _until(ctx, envelope.at)
                    await ctx.relay(envelope)
                batch = await asyncio.to_thread(reading.read)
            if not told:
                _warn(ctx, reading.reader)
            return reading.timeline.end(reading.last)
        finally:
            reading.close()

    def _announce(self, ctx: SourceContext, header: Header) -> None:
        ctx.log.info(
            "plays %s, recorded on node %s by podgpu %s", self._path, header.node, header.version
        )

    def _unreadable(self, error: OSError) -> PermanentError | TransientError:
        if self._demo:
            return PermanentError(
                f"this installation lacks {self._path.name}, the recording behind {DEMO}: "
                "install podgpu anew, or give the path of a recording"
            )
        if isinstance(error, FileNotFoundError):
            return TransientError(
                f"{self._path} isn't there: put a recording there, such as podgpu record makes"
            )
        if isinstance(error, IsADirectoryError):
            return PermanentError(f"{self._path} is a folder: give the path of a recording in it")
        return TransientError(f"cannot read {self._path}: {error.strerror or error}")


async def _until(ctx: SourceContext, moment: Instant) -> None:
    early_ns = moment.mono_ns - ctx.clock.now().mono_ns
    if early_ns > 0:
        await ctx.clock.sleep(early_ns / NS)


def _warn(ctx: SourceContext, reader: RecordingReader) -> None:
    """Say what the recording lacks."""
    if reader.truncated:
        ctx.log.warning(
            "%s lacks its end, as when a recorder is killed: played up to line %d",
            reader.path,
            reader.line,
        )
    for event, count in sorted(reader.skipped.items()):
        ctx.log.warning(
            "%s holds %d events of type %s, which this podgpu doesn't know: passed over",
            reader.path,
            count,
            event,
        )
