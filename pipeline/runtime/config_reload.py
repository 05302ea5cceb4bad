"""Reload of the configuration: watch the file, compare configurations, record the results."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from config.schema import Component, Config
from pipeline.base.telemetry import Telemetry
from pipeline.component.registry import KINDS
from pipeline.files.file_watch import Watcher

_POLL = 10.0
"""Seconds between reads of the file without any inotify event. On some network file systems and
mounts, changes cause no event."""

_SETTLE = 0.1
"""Seconds to wait after an event: an editor or an update of a ConfigMap causes several."""

Changed: TypeAlias = Literal["configuration", "counters"]
"""What can be reloaded separately: the configuration file, or the counters list."""


class ReloadAttempts:
    """Counts reloads of the configuration file and of the counters list.

    A metric shows whether the last reloads of both succeeded.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._succeeded: dict[Changed, bool] = {}

    def count(self, what: Changed, result: str) -> None:
        """Count a reload, and record its result.

        Args:
            what: the file that was reloaded.
            result: `done`, `refused` or `failed`.
        """
        self._telemetry.add("podgpu_config_reloads_total", 1, (("result", result),))
        self.note(what, taken=result == "done")

    def note(self, what: Changed, *, taken: bool) -> None:
        """Record whether the current content of the file is in use. Count no reload."""
        self._succeeded[what] = taken
        value = float(all(self._succeeded.values()))
        self._telemetry.set("podgpu_config_reload_last_successful", value, ())

    def note_unchanged(self, what: Changed) -> None:
        """Record that the file's content is in use: an earlier failed reload no longer counts."""
        if what in self._succeeded:
            self.note(what, taken=True)


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of the components that a reload stops, starts or restarts.

    Attributes:
        sinks: names of sinks, in the order of the new configuration; removed sinks are last.
        sources: names of sources, in the order of the new configuration; removed ones are last.
        reordered: whether the set or the order of the sources has changed.
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
        replanned: whether the plan changes too, so that components that use it must restart.
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
    """Detects changes of a file's content, by inotify and by reading it every ten seconds.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self.path = path
        self._log = log
        self._seen: bytes | None = None
        self._asked = False
        self._watcher = Watcher(path)

    def ask(self) -> None:
        """Request one more report of the file, even if its content has not changed."""
        self._asked = True
        self._watcher.wake()

    async def changed(self) -> AsyncIterator[bool]:
        """Iterate without end over changes of the file and requests by `ask`.

        Yield True for a request, and False for a change. The first value comes immediately if the
        file is readable, because the file may have changed since it was read at start.
        """
        with self._watcher as watcher:
            while True:
                watcher.open()
                watcher.forget()
                content = await asyncio.to_thread(self._read)
                watcher.log_state(self._log)
                asked, self._asked = self._asked, False
                if asked or (content is not None and content != self._seen):
                    self._seen = content
                    yield asked
                if await watcher.wait(_POLL):
                    await asyncio.sleep(_SETTLE)

    def _read(self) -> bytes | None:
        self._watcher.arm()
        try:
            return self.path.read_bytes()
        except OSError:
            return None
