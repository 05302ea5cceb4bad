"""What a changed configuration changes, how podgpu learns of it, and whether it is in force."""

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
from pipeline.component.registry import ENTRIES

_POLL = 10.0
"""Seconds between looks at the file where no event comes: network file systems, odd mounts."""

_SETTLE = 0.1
"""Seconds to wait after an event: an editor or an update of a ConfigMap makes several."""

_MASK = (
    Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.CREATE | Mask.DELETE | Mask.MODIFY | Mask.DELETE_SELF
)


Changed: TypeAlias = Literal["configuration", "counters"]
"""What may be changed by itself: the configuration's file, or the list of counters."""


class ReloadAttempts:
    """Counts attempts to take over a change, and tells whether the last one of each succeeded."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._taken: dict[Changed, bool] = {}

    def count(self, what: Changed, result: str) -> None:
        """Count an attempt.

        Args:
            what: was changed.
            result: `done`, `refused` or `failed`.
        """
        self._telemetry.add("podgpu_config_reloads_total", 1, (("result", result),))
        self.note(what, taken=result == "done")

    def note(self, what: Changed, *, taken: bool) -> None:
        """Tell whether what was changed last is in force, without counting an attempt."""
        self._taken[what] = taken
        value = float(all(self._taken.values()))
        self._telemetry.set("podgpu_config_reload_last_successful", value, ())

    def note_unchanged(self, what: Changed) -> None:
        """Tell that what stands there is what is in force: a refusal of before is over."""
        if what in self._taken:
            self.note(what, taken=True)


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


def changes(old: Config, new: Config, *, replanned: bool = False) -> Changes:
    """Compare two configurations component by component.

    Sinks carry the node's name in their labels, and sources ask the cluster for it: a new name
    changes them all.

    Args:
        old: the configuration in force.
        new: the one to come.
        replanned: another plan comes with it, which changes those that look at it.
    """
    renamed = old.node != new.node

    def other(component: Component, before: Component | None) -> bool:
        entry = ENTRIES.get((component.role, component.kind))
        planned = entry is not None and entry.uses_plan
        return renamed or component != before or (replanned and planned)

    sinks = [name for name, sink in new.sinks.items() if other(sink, old.sinks.get(name))]
    sinks += [name for name in old.sinks if name not in new.sinks]
    sources = [name for name, one in new.sources.items() if other(one, old.sources.get(name))]
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
        self._trouble = ""
        self._asked = False
        self._wake_event = asyncio.Event()

    def ask(self) -> None:
        """Report the file at the next opportunity, changed or not."""
        self._asked = True
        self._wake_event.set()

    async def changed(self) -> AsyncIterator[bool]:
        """Iterate over changes, for ever; True for one that was asked for.

        The first comes at once: the file may have changed between being read and being watched.
        """
        while True:
            with ExitStack() as stack:
                # Made anew each time: the folder may be another one by now.
                self._wake_event.clear()
                self._watched(stack)
                content = await asyncio.to_thread(self._read)
                asked = self._asked
                if asked or (content is not None and content != self._seen):
                    self._asked = False
                    self._seen = content
                    yield asked
                if await self._event():
                    await asyncio.sleep(_SETTLE)

    def _watched(self, stack: ExitStack) -> None:
        """Watch the folder until `stack` ends; say once if that can't be done now."""
        try:
            inotify = stack.enter_context(Inotify())
            inotify.add_watch(self.path.parent, _MASK)
        except OSError as error:
            if self._trouble != str(error):
                self._trouble = str(error)
                self._log.warning(
                    "can't watch %s (%s): looking every %.0f s instead",
                    self.path.parent,
                    error,
                    _POLL,
                )
            return
        self._trouble = ""
        # One event is enough, and which one doesn't matter: nothing is read from the descriptor.
        # The loop lets go of the descriptor before it is closed.
        loop = asyncio.get_running_loop()
        loop.add_reader(inotify.fd, self._wake, inotify.fd)
        stack.callback(loop.remove_reader, inotify.fd)

    def _wake(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        self._wake_event.set()

    async def _event(self) -> bool:
        """Wait for an event in the folder, a request, or the next look; True for the first two."""
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
