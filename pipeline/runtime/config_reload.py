"""Configuration reload: watches the file, compares configurations, records whether reloads work."""

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
"""Seconds between checks of the file if no events arrive: network file systems, unusual mounts."""

_SETTLE = 0.1
"""Seconds to wait after an event: an editor or an update of a ConfigMap causes several."""

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
        """Report the file as soon as possible, changed or not."""
        self._asked = True
        self._watcher.wake()

    async def changed(self) -> AsyncIterator[bool]:
        """Iterate over changes, without end; True for one that `ask` requested.

        The first is immediate: the file may have changed since it was read at start.
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
