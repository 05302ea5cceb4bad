"""Configuration reload: watches the file, compares configurations, records whether reloads work."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from asyncinotify import Inotify, Mask

from config.schema import Component, Config
from pipeline.base.telemetry import Telemetry
from pipeline.component.registry import KINDS

_POLL = 10.0
"""Seconds between checks of the file if no events arrive: network file systems, unusual mounts."""

_SETTLE = 0.1
"""Seconds to wait after an event: an editor or an update of a ConfigMap causes several."""

_MASK = (
    Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.CREATE | Mask.DELETE | Mask.MODIFY | Mask.DELETE_SELF
)


Changed: TypeAlias = Literal["configuration", "counters"]
"""What can be reloaded separately: the configuration file, or the counters list."""


class ReloadAttempts:
    """Counts reloads, and records whether the last one of each kind succeeded."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._succeeded: dict[Changed, bool] = {}

    def count(self, what: Changed, result: str) -> None:
        """Count a reload.

        Args:
            what: what changed.
            result: `done`, `refused` or `failed`.
        """
        self._telemetry.add("podgpu_config_reloads_total", 1, (("result", result),))
        self.note(what, taken=result == "done")

    def note(self, what: Changed, *, taken: bool) -> None:
        """Record whether the last change is in use, without counting a reload."""
        self._succeeded[what] = taken
        value = float(all(self._succeeded.values()))
        self._telemetry.set("podgpu_config_reload_last_successful", value, ())

    def note_unchanged(self, what: Changed) -> None:
        """Record that the file equals what is in use: an earlier refusal no longer counts."""
        if what in self._succeeded:
            self.note(what, taken=True)


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of the components to stop, to start or to restart.

    Attributes:
        sinks: in the order of the new configuration; removed sinks are last.
        sources: in the order of the new configuration; removed sources are last.
        reordered: the order of the sources has changed.
    """

    sinks: tuple[str, ...]
    sources: tuple[str, ...]
    reordered: bool


def changes(old: Config, new: Config, *, replanned: bool = False) -> Changes:
    """Compare two configurations component by component.

    All components change if the node's name changes, because sinks use it in labels and sources use
    it in requests to the API server.

    Args:
        old: the current configuration.
        new: the new configuration.
        replanned: the plan changes too, so that components that use it change.
    """
    renamed = old.node != new.node

    def differs(component: Component, before: Component | None) -> bool:
        entry = KINDS.get((component.role, component.kind))
        uses_plan = entry is not None and entry.uses_plan
        return renamed or component != before or (replanned and uses_plan)

    sinks = [name for name, sink in new.sinks.items() if differs(sink, old.sinks.get(name))]
    sinks += [name for name in old.sinks if name not in new.sinks]
    sources = [name for name, one in new.sources.items() if differs(one, old.sources.get(name))]
    sources += [name for name in old.sources if name not in new.sources]
    return Changes(tuple(sinks), tuple(sources), list(old.sources) != list(new.sources))


class FileWatch:
    """Reports when a file's content changes, by any method of writing.

    Watches the folder instead of the file, because an editor renames a new file into place, and an
    update of a mounted ConfigMap replaces the link `..data` in the folder.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self.path = path
        self._log = log
        self._seen: bytes | None = None
        self._logged_error = ""
        self._asked = False
        self._wake_event = asyncio.Event()

    def ask(self) -> None:
        """Report the file as soon as possible, changed or not."""
        self._asked = True
        self._wake_event.set()

    async def changed(self) -> AsyncIterator[bool]:
        """Iterate over changes, without end; True for one that `ask` requested.

        The first is immediate: the file may have changed since it was read at start.
        """
        while True:
            with ExitStack() as stack:
                # Opened again each time, because the folder may have been replaced.
                self._wake_event.clear()
                self._watch_folder(stack)
                content = await asyncio.to_thread(self._read)
                asked = self._asked
                if asked or (content is not None and content != self._seen):
                    self._asked = False
                    self._seen = content
                    yield asked
                if await self._event():
                    await asyncio.sleep(_SETTLE)

    def _watch_folder(self, stack: ExitStack) -> None:
        """Watch the folder until `stack` ends; if that fails, log the error once."""
        try:
            inotify = stack.enter_context(Inotify())
            inotify.add_watch(self.path.parent, _MASK)
        except OSError as error:
            if self._logged_error != str(error):
                self._logged_error = str(error)
                self._log.warning(
                    "cannot watch %s for changes (%s); checking it every %.0f s instead",
                    self.path.parent,
                    error,
                    _POLL,
                )
            return
        self._logged_error = ""
        # The first event is enough, of any kind, so that the descriptor is never read. The loop
        # stops to use the descriptor before it is closed.
        loop = asyncio.get_running_loop()
        loop.add_reader(inotify.fd, self._wake, inotify.fd)
        stack.callback(loop.remove_reader, inotify.fd)

    def _wake(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        self._wake_event.set()

    async def _event(self) -> bool:
        """Wait for an event, a request or the poll interval; return True for the first two."""
        try:
            async with asyncio.timeout(_POLL):
                await self._wake_event.wait()
        except TimeoutError:
            return False
        return True

    def _read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except OSError:
            return None
