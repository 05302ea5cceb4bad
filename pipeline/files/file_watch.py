"""Detects changes of a file, or of the files in a folder, by inotify."""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from asyncinotify import Event, InitFlags, Inotify, Mask, Watch

from pipeline.files.symlink_chain import links_of

_FOLDER_EVENTS = (
    Mask.CREATE
    | Mask.DELETE
    | Mask.MOVED_FROM
    | Mask.MOVED_TO
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
    | Mask.ONLYDIR
)
# A file that is itself a mount is watched too: a watch of the folder around such a mount does not
# report writes to it. ATTRIB is sent when the file is removed outside.
_FILE_EVENTS = Mask.MODIFY | Mask.CLOSE_WRITE | Mask.ATTRIB | Mask.DELETE_SELF | Mask.MOVE_SELF
_ENTRY_EVENTS = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
# The library's NONBLOCK has the value of CLOEXEC.
_FLAGS = InitFlags(os.O_CLOEXEC | os.O_NONBLOCK)

_SETTLE_SECONDS = 0.005
_BATCH = 256
_POLL_SECONDS = 1.0
_LIMITS = {
    errno.EMFILE: "no more inotify instances or file descriptors may be opened "
    "(fs.inotify.max_user_instances, the limit of open files)",
    errno.ENFILE: "the machine has no file descriptors left",
    errno.ENOMEM: "the kernel has no memory for more watches",
    errno.ENOSPC: "no more inotify watches may be added (fs.inotify.max_user_watches)",
}


class Watcher:
    """Watches a file and every folder and symbolic link on the path to it.

    `arm` runs in a thread, because it resolves the path; all other methods are for the event loop.

    Args:
        path: the file, or the folder.
        entries: whether the path is a folder, of which every file is watched. A file that is a
            symbolic link is watched as a link: changes of its target are not detected.
        folders: returns folders in which files and folders may appear and disappear; only this is
            watched there. `arm` calls it.
    """

    def __init__(
        self,
        path: Path,
        *,
        entries: bool = False,
        folders: Callable[[], Iterable[Path]] = tuple,
    ) -> None:
        self._path = path
        self._entries = entries
        self._folders = folders
        self._whole: frozenset[Path] = frozenset({path} if entries else ())
        self._inotify: Inotify | None = None
        self._armed: dict[int, Watch] = {}
        self._names: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._logged_error = ""
        self.trouble = ""
        """Why the kernel may not report all changes; empty if it reports all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify, self._armed = None, {}

    def open(self) -> None:
        """Create the inotify instance, if there is none. On an error, set `trouble`."""
        if self._inotify is not None:
            return
        try:
            self._inotify = Inotify(_FLAGS, cache_size=_BATCH)
        except OSError as error:
            self.trouble = _reason(error)
        else:
            asyncio.get_running_loop().add_reader(self._inotify.fd, self._drain, self._inotify)

    def arm(self) -> None:
        """Watch the file and the folders on its path. Call this before you read the file.

        So changes after the read are detected. On an error, set `trouble`.
        """
        inotify = self._inotify
        if inotify is None:
            return
        armed: dict[int, Watch] = {}
        trouble = ""
        names: set[str] = set()
        for folder, name in links_of(str(self._path)):
            names.add(name)
            # Set before the watch, so that its first event is recognized.
            self._names |= names
            trouble = _add(inotify, folder, _FOLDER_EVENTS, armed) or trouble
        mask = _FILE_EVENTS | _ENTRY_EVENTS if self._entries else _FILE_EVENTS
        trouble = _add(inotify, str(self._path), mask, armed) or trouble
        whole = {self._path} if self._entries else set()
        for folder_path in self._folders():
            whole.add(folder_path)
            self._whole |= whole
            trouble = _add(inotify, str(folder_path), _FOLDER_EVENTS, armed) or trouble
        for wd in self._armed.keys() - armed.keys():
            with contextlib.suppress(OSError):  # the kernel removes it with the watched file
                inotify.rm_watch(self._armed[wd])
        if inotify is self._inotify:
            self._armed, self._names, self.trouble = armed, frozenset(names), trouble
            self._whole = frozenset(whole)

    async def wait(self, seconds: float) -> bool:
        """Wait for a change; return whether there may have been one.

        Args:
            seconds: maximum time to wait. It is at most a second while `trouble` is set.
        """
        limit = min(seconds, _POLL_SECONDS) if self.trouble else seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._changed.wait()
        return self._changed.is_set()

    def wake(self) -> None:
        """End `wait` as if there had been a change."""
        self._changed.set()

    def log_state(self, log: logging.Logger) -> None:
        """Log once that changes may be missed, and once that they are detected again."""
        if self.trouble and self.trouble != self._logged_error:
            log.warning(
                "%s: cannot watch for changes: %s; podgpu checks the file every second instead",
                self._path,
                self.trouble,
            )
        elif self._logged_error and not self.trouble:
            log.info("%s: watching for changes again", self._path)
        self._logged_error = self.trouble

    def forget(self) -> None:
        """Forget the changes up to now. Call this before you read the file."""
        self._changed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drain(self, inotify: Inotify) -> None:
        if inotify is not self._inotify:
            return
        try:
            for _ in range(_BATCH):
                event = inotify.sync_get()
                if event is not None and self._concerns(event):
                    self._on_event(event.mask)
        except BlockingIOError:
            return
        except OSError as error:
            # Not closed here, since `arm` may be using it: it closes when it is collected.
            asyncio.get_running_loop().remove_reader(inotify.fd)
            self._inotify, self._armed, self.trouble = None, {}, _reason(error)
            return
        # There are more events than a batch: give the event loop a turn. Events in the library's
        # buffer do not make the descriptor readable, so `_drain` is called again explicitly.
        asyncio.get_running_loop().call_soon(self._drain, inotify)

    def _concerns(self, event: Event) -> bool:
        if event.name is None or str(event.name) in self._names:
            return True
        watch = event.watch
        return watch is not None and watch.path in self._whole

    def _on_event(self, mask: Mask) -> None:
        if not mask & (Mask.MODIFY | Mask.CREATE):
            self._changed.set()
        elif self._timer is None and not self._changed.is_set():
            # A program has started to write; closing the file is an event of its own. If it keeps
            # the file open, the file is read after a moment.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_SETTLE_SECONDS, self._changed.set)


def _add(inotify: Inotify, path: str, mask: Mask, armed: dict[int, Watch]) -> str:
    try:
        watch = inotify.add_watch(path, mask)
    except OSError as error:
        # Reading the file meets any other error too, and reports it.
        return _reason(error) if error.errno in _LIMITS else ""
    armed[watch.wd] = watch
    return ""


def _reason(error: OSError) -> str:
    return _LIMITS.get(error.errno or 0) or os.strerror(error.errno or 0).lower()
