"""The sink `textfile`."""

import errno
import stat
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.exposition.renderer import Renderer
from pipeline.exposition.text_format import Format
from pipeline.files.atomic_replace import AtomicFile, SweptError, refusal
from pipeline.files.file_thread import FileThread
from pipeline.model import NS
from sinks.textfile.options import Options

_MOUNTED: Final = "is mounted by itself and can't be replaced: mount its folder instead"


class TextfileSink:
    """Writes the newest page, with the ages as they are then, once in each interval.

    Args:
        options: see `docs/sinks/textfile.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._renderer = Renderer(options, ctx.plan, ctx.node, ctx.meter)
        self._file = _File(options.path)
        self._thread = FileThread(f"podgpu-sink-{ctx.name}", options.path, partial(warn, ctx))
        self._due_ns = 0

    async def __aenter__(self) -> Self:
        """Look whether the file can be written."""
        await self._thread.open(self._file.enter)
        self._due_ns = 0
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Take the file away, unless it is to stay, after the write that has begun."""
        try:
            await self._thread.close(None if self._options.keep else self._file.remove)
        except OSError as error:
            warn(self._ctx, "%s: can't be removed: %s", self._options.path, error.strerror)

    async def run(self, inbox: SinkInbox) -> None:
        """Write until the inbox ends, and then once more what hasn't been written."""
        unwritten = True
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            self._renderer.show(arrivals.latest)
            while not arrivals.ended:
                if self._rest() <= 0:
                    await self._write()
                    unwritten = False
                if await arrivals.wait(self._rest()):
                    self._renderer.show(arrivals.latest)
                    unwritten = True
        if unwritten and self._options.keep:
            await self._write()

    def _rest(self) -> float:
        """Return the seconds until the next write."""
        return max((self._due_ns - self._ctx.clock.now().mono_ns) / NS, 0)

    async def _write(self) -> None:
        form = Format.TEXT
        page = self._renderer.body(form) + self._renderer.tail(form, self._ctx.telemetry())
        self._due_ns = self._ctx.clock.now().mono_ns + self._options.interval.ns
        await self._thread.call(partial(self._file.write, page))


class _File:
    """The file. Everything here blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = AtomicFile(path, durable=False)
        self._written = False

    def enter(self) -> None:
        """Clear away what was left beside the file.

        Raises:
            PermanentError: the path is something that can't be a file of ours.
            TransientError: the folder isn't there, or can't be read.
        """
        try:
            mode = self._path.lstat().st_mode
        except OSError:
            pass  # whether it can be made, the folder tells
        else:
            if not stat.S_ISREG(mode):
                what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
                raise PermanentError(f"{self._path}: is {what}; give the path of a file")
        try:
            self._place.sweep()
        except OSError as error:
            raise TransientError(refusal(error, self._path, self._path.parent)) from error

    def write(self, page: bytes) -> None:
        """Put a page in the place of the one before.

        Raises:
            TransientError: it can't be done.
        """
        try:
            self._place.write(page)
        except SweptError:
            raise TransientError(
                f"{self._path}: somebody clears the folder away: give a folder that stays"
            ) from None
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TransientError(f"{self._path}: {_MOUNTED}") from error
            raise TransientError(refusal(error, self._path, self._path.parent)) from error
        self._written = True

    def remove(self) -> None:
        """Take the file away, if it is ours."""
        if self._written:
            self._path.unlink(missing_ok=True)
            self._written = False
