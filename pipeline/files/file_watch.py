"""Tells when the file may have changed, by inotify."""

import asyncio
import errno
import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from asyncinotify import Event, InitFlags, Inotify, Mask, Watch

from pipeline.files.symlink_chain import links_of

_FOLDER = (
    Mask.CREATE
    | Mask.DELETE
    | Mask.MOVED_FROM
    | Mask.MOVED_TO
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
    | Mask.ONLYDIR
)
# A file that is mounted alone is watched itself: a watch of the folder around such a mount sees
# nothing of what is written to it. ATTRIB comes when the file loses its name outside.
_FILE = Mask.MODIFY | Mask.CLOSE_WRITE | Mask.ATTRIB | Mask.DELETE_SELF | Mask.MOVE_SELF
# The library's own NONBLOCK flag is that of CLOEXEC.
_FLAGS = InitFlags(os.O_CLOEXEC | os.O_NONBLOCK)

_SETTLE = 0.005
_BATCH = 256
_WITHOUT_INOTIFY = 1.0
_LIMITS = {
    errno.EMFILE: "no more inotify instances or file descriptors may be opened "
    "(fs.inotify.max_user_instances, the limit of open files)",
    errno.ENFILE: "the machine has no file descriptors left",
    errno.ENOMEM: "the kernel has no memory for it",
    errno.ENOSPC: "no more inotify watches may be added (fs.inotify.max_user_watches)",
}


class Watcher:
    """Watches the file and every folder on the way to it.

    `arm` runs in a thread, since it looks the path up; all else belongs to the event loop.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inotify: Inotify | None = None
        self._armed: dict[int, Watch] = {}
        self._names: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._logged_error = ""
        self.trouble = ""
        """Why changes may go unseen; empty while they can't."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def open(self) -> None:
        """Get an inotify instance, unless there is one."""
        if self._inotify is not None:
            return
        try:
            self._inotify = Inotify(_FLAGS, cache_size=_BATCH)
        except OSError as error:
            self.trouble = _trouble(error)
        else:
            asyncio.get_running_loop().add_reader(self._inotify.fd, self._drain, self._inotify)

    def arm(self) -> None:
        """Watch what the path leads through now; what is read after this can't go stale unseen."""
        inotify = self._inotify
        if inotify is None:
            return
        armed: dict[int, Watch] = {}
        trouble = ""
        names: set[str] = set()
        for folder, name in links_of(str(self._path)):
            names.add(name)
            # Set before the watch, so that its first event finds its name here.
            self._names |= names
            trouble = _add(inotify, folder, _FOLDER, armed) or trouble
        trouble = _add(inotify, str(self._path), _FILE, armed) or trouble
        for wd in self._armed.keys() - armed.keys():
            try:
                inotify.rm_watch(self._armed[wd])
            except OSError:
                # Gone by itself, with what it watched.
                continue
        if inotify is self._inotify:
            self._armed, self._names, self.trouble = armed, frozenset(names), trouble

    async def wait(self, seconds: float) -> bool:
        """Wait for a change, at most that long; return whether there may have been one."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        """Let `wait` end as if there had been a change."""
        self._changed.set()

    def log_state(self, log: logging.Logger) -> None:
        """Say once that changes may go unseen, and once that they no longer can."""
        if self.trouble and self.trouble != self._logged_error:
            log.warning(
                "%s: changes can't be watched: %s; looking each second instead",
                self._path,
                self.trouble,
            )
        elif self._logged_error and not self.trouble:
            log.info("%s: changes are watched again", self._path)
        self._logged_error = self.trouble

    def max_wait(self, seconds: float) -> float:
        """Return how long to wait for a change at most: not as long where it may go unseen."""
        return min(seconds, _WITHOUT_INOTIFY) if self.trouble else seconds

    def forget(self) -> None:
        """Forget changes up to now: the file is about to be read."""
        self._changed.clear()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _drain(self, inotify: Inotify) -> None:
        try:
            for _ in range(_BATCH):
                event = inotify.sync_get()
                if event is not None and self._concerns(event):
                    self._note(event.mask)
        except BlockingIOError:
            return
        except OSError as error:
            # Not closed here, since `arm` may be using it: it closes when nobody has it any more.
            asyncio.get_running_loop().remove_reader(inotify.fd)
            self._inotify, self._armed, self.trouble = None, {}, _trouble(error)
            return
        # More than a batch at once: the loop gets its turn. What the library holds in its own
        # buffer makes no descriptor readable, so this comes back by itself.
        asyncio.get_running_loop().call_soon(self._again, inotify)

    def _again(self, inotify: Inotify) -> None:
        if inotify is self._inotify:
            self._drain(inotify)

    def _concerns(self, event: Event) -> bool:
        return event.name is None or str(event.name) in self._names

    def _note(self, mask: Mask) -> None:
        if not mask & (Mask.MODIFY | Mask.CREATE):
            self._changed.set()
        elif self._soon is None and not self._changed.is_set():
            # Somebody has begun to write; when he closes the file, that comes as its own event.
            # One who keeps it open gets read after a moment.
            loop = asyncio.get_running_loop()
            self._soon = loop.call_later(_SETTLE, self._changed.set)

    def _close(self) -> None:
        self.forget()
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None
            self._armed = {}


def _add(inotify: Inotify, path: str, mask: Mask, armed: dict[int, Watch]) -> str:
    try:
        watch = inotify.add_watch(path, mask)
    except OSError as error:
        # Whatever else stands in the way, reading the file meets it too and says so.
        return _trouble(error) if error.errno in _LIMITS else ""
    armed[watch.wd] = watch
    return ""


def _trouble(error: OSError) -> str:
    return _LIMITS.get(error.errno or 0) or os.strerror(error.errno or 0).lower()
