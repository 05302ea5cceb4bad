"""The source `replay`: plays a recording."""

import asyncio
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SourceContext
from pipeline.files.bounded_read import opened
from pipeline.model import NS, Envelope, Instant, TotalsRestored
from pipeline.recording import CHUNK_BYTES, RecordingError
from sources.replay.continuation import Continuation
from sources.replay.options import DEMO, Options, recording_path
from sources.replay.recording_pass import ReplayPass

_KIND = "replay"
_RETRY_SECONDS: Final = 60.0
"""Seconds until a damaged recording is read again: the file may have been replaced."""


class ReplaySource:
    """Relays the events of a recording, under the names of the sources that emitted them.

    Args:
        options: the options; see `docs/sources/replay.md`.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._demo = options.path == DEMO
        self._path = recording_path(options.path)
        self._name = DEMO if self._demo else str(self._path)

    async def run(self, ctx: SourceContext) -> None:
        """Play the recording once, or repeatedly until cancelled.

        Raises:
            PermanentError: the path is a folder, or podgpu's own recording cannot be read.
            TransientError: the recording cannot be read.
        """
        began, first = ctx.clock.now(), True
        continuation = Continuation()
        while True:
            try:
                ended = await self._play(ctx, began, continuation, is_repeat=not first)
            except RecordingError as error:
                if self._demo:
                    raise PermanentError(f"{error}; or reinstall podgpu") from error
                # Not permanent: other sources continue, and the file may be replaced.
                raise TransientError(str(error), retry_after=_RETRY_SECONDS) from error
            except OSError as error:
                raise self._unreadable(error) from error
            if not self._options.loop:
                break
            await _until(ctx, ended)
            # After a delay, continue from now instead of catching up with what was missed.
            now = ctx.clock.now()
            began = ended if now.mono_ns - ended.mono_ns < NS else now
            first = False
        ctx.log.info("%s has ended; its last data stays valid until it expires", self._name)

    async def _play(
        self, ctx: SourceContext, began: Instant, continuation: Continuation, *, is_repeat: bool
    ) -> Instant:
        """Play the recording once; return the time at which the next pass starts."""
        recording = ReplayPass(
            Path(self._name),
            began,
            self._options.speed,
            continuation,
            original=self._options.time == "original",
        )
        chunk, announced = None, is_repeat
        async with opened(self._path) as file:
            while chunk != b"":
                chunk = await file.read(CHUNK_BYTES)
                events = recording.events(chunk)
                while batch := await asyncio.to_thread(recording.take, events):
                    if not announced:
                        header, announced = recording.header, True
                        text = "replaying %s, recorded on node %s by podgpu %s"
                        ctx.log.info(text, self._name, header.node, header.version)
                    await _relay(ctx, batch, is_repeat=is_repeat)
        if not is_repeat:
            _log_warnings(ctx, recording)
        return recording.end()

    def _unreadable(self, error: OSError) -> PermanentError | TransientError:
        if self._demo:
            return PermanentError(
                f"{self._path.name}, the recording for {DEMO}, cannot be read "
                f"({error.strerror or error}): reinstall podgpu, or give the path of a recording"
            )
        if isinstance(error, FileNotFoundError):
            return TransientError(
                f"{self._path} does not exist: create a recording there with podgpu record"
            )
        if isinstance(error, IsADirectoryError):
            return PermanentError(f"{self._path} is a folder: give the path of a recording in it")
        return TransientError(f"cannot read {self._path}: {error.strerror or error}")


async def _relay(ctx: SourceContext, batch: list[Envelope], *, is_repeat: bool) -> None:
    for envelope in batch:
        if envelope.kind == _KIND:
            continue  # a recorded replay emits no events of its own
        if is_repeat and isinstance(envelope.event, TotalsRestored):
            continue  # the first pass restored these totals already
        # Wait until the event's own time, so that delays do not add up.
        await _until(ctx, envelope.at)
        await ctx.relay(envelope)


async def _until(ctx: SourceContext, moment: Instant) -> None:
    early_ns = moment.mono_ns - ctx.clock.now().mono_ns
    if early_ns > 0:
        await ctx.clock.sleep(early_ns / NS)


def _log_warnings(ctx: SourceContext, recording: ReplayPass) -> None:
    """Log a warning if the recording is incomplete or contains unknown events."""
    if recording.truncated:
        ctx.log.warning(
            "%s is incomplete, as if the recorder was killed: replayed up to line %d",
            recording.path,
            recording.line,
        )
    for event, count in sorted(recording.skipped.items()):
        ctx.log.warning(
            "%s contains %d events of type %s, which this podgpu does not know: ignored",
            recording.path,
            count,
            event,
        )
