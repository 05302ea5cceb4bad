"""What a changed configuration changes, and how podgpu learns of the change."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncinotify import Inotify, Mask

from config.schema import Config

_POLL = 10.0
"""Seconds between looks at the file where no event comes: network file systems, odd mounts."""

_SETTLE = 0.1
"""Seconds without an event that end a change: an editor or a ConfigMap update makes several."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of the components that have to be stopped, started or both.

    Attributes:
        sinks: in the order of the new configuration, those that left it last.
        sources: likewise.
        reordered: sources that stay have another place in the file.
    """

    sinks: tuple[str, ...]
    sources: tuple[str, ...]
    reordered: bool


def changes(old: Config, new: Config) -> Changes:
    """Compare two configurations component by component.

    A sink carries the node's name in its labels, so a new name changes them all.
    """
    renamed = old.node != new.node
    sinks = [name for name, sink in new.sinks.items() if renamed or old.sinks.get(name) != sink]
    sinks += [name for name in old.sinks if name not in new.sinks]
    sources = [name for name, source in new.sources.items() if old.sources.get(name) != source]
    sources += [name for name in old.sources if name not in new.sources]
    return Changes(tuple(sinks), tuple(sources), list(old.sources) != list(new.sources))


class FileWatch:
    """Tells when a file's content has changed, however that came about.

    Watches the folder, not the file: an editor renames a new file into place, and a mounted
    ConfigMap swaps the link `..data` beside it.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self.path = path
        self._log = log
        self._seen: bytes | None = None
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Report the file at the next opportunity, changed or not."""
        self._asked.set()

    async def changed(self) -> AsyncIterator[bool]:
        """Iterate over changes, for ever; True for one that was asked for.

        The first comes at once: the file may have changed between being read and being watched.
        """
        with Inotify() as inotify:
            try:
                inotify.add_watch(
                    self.path.parent,
                    Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.CREATE | Mask.DELETE | Mask.MODIFY,
                )
            except OSError as error:
                self._log.warning(
                    "can't watch %s (%s): looking every %.0f s instead",
                    self.path.parent,
                    error,
                    _POLL,
                )
            self._seen = await asyncio.to_thread(self._read)
            yield False
            while True:
                if await self._event(inotify, _POLL):
                    deadline = asyncio.get_running_loop().time() + 10 * _SETTLE
                    while await self._event(inotify, _SETTLE):
                        if asyncio.get_running_loop().time() > deadline:
                            break
                content = await asyncio.to_thread(self._read)
                asked = self._asked.is_set()
                if asked or (content is not None and content != self._seen):
                    self._asked.clear()
                    self._seen = content
                    yield asked

    async def _event(self, inotify: Inotify, seconds: float) -> bool:
        """Wait for an event in the folder or a request; return whether one came in time."""
        event = asyncio.ensure_future(inotify.get())
        asked = asyncio.ensure_future(self._asked.wait())
        waiting: set[asyncio.Future[Any]] = {event} if self._asked.is_set() else {event, asked}
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            return bool(done)
        finally:
            event.cancel()
            asked.cancel()

    def _read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except OSError:
            return None
