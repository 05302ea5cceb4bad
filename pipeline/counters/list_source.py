"""Reads the text of a counters list from a file, a ConfigMap or the configuration itself.

The first two are also followed for changes.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Final, TypeAlias

import orjson

from config.schema import Counters
from config.value_types import ByteSize
from pipeline.base.backoff import Backoff
from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.files.bounded_read import AbsentError, UnreadableError, read_file
from pipeline.files.file_watch import Watcher

MAX_SIZE: Final = ByteSize.parse("1MiB")
"""The largest list that is read. A ConfigMap cannot be larger, and a list has a few kilobytes."""

_POLL: Final = 10.0
"""Seconds between checks of a file if there are no events, as on network file systems."""

_SETTLE: Final = 0.2
_UNSETTLED: Final = 2.0
"""A changed file is read after `_SETTLE` seconds without a further change, but after `_UNSETTLED`
seconds at the latest: a writer that truncates the file and writes it leaves half a list between."""

_REQUEST_INTERVAL: Final = 60.0
"""Seconds between two requests for a ConfigMap. A watch would need more rights than the role of
dcgm-exporter, which may only `get` the ConfigMap by name."""

_TIMEOUT: Final = 10.0
"""Seconds within which the API server must respond."""

_KEY: Final = "metrics"

Connect: TypeAlias = Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]


class ListUnavailableError(Exception):
    """The list cannot be read now. The text contains the reason and what to do.

    Attributes:
        dedup_key: a key that is equal for errors of which only the first in a row is logged.
    """

    def __init__(self, text: str, kind: object = None) -> None:
        super().__init__(text)
        self.dedup_key = text if kind is None else kind


def read_list(path: Path, *, orphan: bool = False) -> str:
    """Read a list from a file. Blocks.

    Args:
        path: the file.
        orphan: whether to accept a file that was replaced on the host while the mount still shows
            the old one.

    Raises:
        ListUnavailableError: the file cannot be read.
    """
    try:
        content = read_file(path, MAX_SIZE, None, orphan=orphan)
    except AbsentError as error:
        raise ListUnavailableError(f"{error}; check the path, and that it is mounted") from error
    except UnreadableError as error:
        raise ListUnavailableError(str(error)) from error
    # A help text in another encoding does not make its row invalid.
    return (content.data or b"").decode("utf-8", "replace")


class ListFile:
    """A list in a file. All links and folders of its path are watched.

    Attributes:
        place: the file, for messages.
        vital: whether podgpu needs the list to start.
        watching: context manager to use around calls of `wait`.
    """

    vital = True

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path
        self.watching = self._watcher = Watcher(path)
        self._is_watched = False
        self._asked = False
        self._never_read = True

    async def read(self) -> str:
        """Return the text of the list. After that, `wait` returns when the file changes.

        Raises:
            ListUnavailableError: the file cannot be read.
        """
        self._watcher.forget()
        self._asked = False
        return await asyncio.to_thread(self._read_file)

    def _read_file(self) -> str:
        self._watcher.arm()
        # At start, an outdated file of a mount is better than none; later it is a fault.
        text = read_list(self._path, orphan=self._never_read)
        self._never_read = False
        return text

    async def wait(self) -> None:
        """Wait for a change, and then until the file does not change any more.

        Returns without a change at the first call, after `_POLL` seconds, and after `ask`.
        """
        self._watcher.open()
        if not self._is_watched:
            self._is_watched = True
            return  # the file may have changed between the first read and the start of the watch
        if not await self._watcher.wait(_POLL):
            return
        loop = asyncio.get_running_loop()
        latest = loop.time() + _UNSETTLED
        while not self._asked and loop.time() < latest:
            self._watcher.forget()
            # The path may have a new target now, which is still being written.
            await asyncio.to_thread(self._watcher.arm)
            if not await self._watcher.wait(_SETTLE):
                return

    def ask(self) -> None:
        """Let `wait` return immediately."""
        self._asked = True
        self._watcher.wake()


class ListConfigMap:
    """A list in the key `metrics` of a ConfigMap, which is requested periodically.

    Attributes:
        place: the ConfigMap, for messages.
        vital: whether podgpu needs the list to start.
        watching: context manager to use around calls of `wait`.
    """

    vital = False
    watching = nullcontext()

    def __init__(self, name: str, kubeconfig: Path | None, connect: Connect) -> None:
        self.place = f"ConfigMap {name}"
        namespace, _, name = name.partition(":")
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._kubeconfig = kubeconfig
        self._connect = connect
        self._asked = asyncio.Event()
        self._backoff = Backoff(max_delay=_REQUEST_INTERVAL)
        self._pause = _REQUEST_INTERVAL

    async def read(self) -> str:
        """Return the text of the list.

        Raises:
            ListUnavailableError: the ConfigMap cannot be read, or has no list.
        """
        self._asked.clear()
        self._pause = self._backoff.delay(0)
        text = self._text(await self._request())
        self._backoff, self._pause = Backoff(max_delay=_REQUEST_INTERVAL), _REQUEST_INTERVAL
        return text

    async def _request(self) -> bytes:
        try:
            async with asyncio.timeout(_TIMEOUT), self._connect(self._kubeconfig) as api:
                return await api.get(self._path, {})
        except TimeoutError:
            raise ListUnavailableError(f"{self.place}: no response in {_TIMEOUT:.0f} s") from None
        except ApiError as error:
            raise ListUnavailableError(f"{self.place}: {error}", error.dedup_key) from error
        except TransientError as error:
            raise ListUnavailableError(f"{self.place}: {error}") from error

    def _text(self, body: bytes) -> str:
        try:
            data = orjson.loads(body).get("data") or {}
            text = data.get(_KEY)
        except (orjson.JSONDecodeError, AttributeError):
            raise ListUnavailableError(f"{self.place}: the response is not a ConfigMap") from None
        if not isinstance(text, str):
            keys = ", ".join(data) or "none"
            raise ListUnavailableError(
                f"{self.place}: the key {_KEY} with the counters list is missing; its keys: {keys}"
            )
        return text

    async def wait(self) -> None:
        """Wait until the next request is due; earlier after an error, and after `ask`."""
        try:
            async with asyncio.timeout(self._pause):
                await self._asked.wait()
        except TimeoutError:
            return

    def ask(self) -> None:
        """Let `wait` return immediately."""
        self._asked.set()


def text_of_rows(rows: Iterable[str]) -> str:
    """Return a list with these rows, one per line, so that line numbers are numbers of rows."""
    return "\n".join(" ".join(row.splitlines()) for row in rows)


class ListRows:
    """A list in the configuration itself. It never changes.

    Attributes:
        place: the key of the configuration, for messages.
        vital: whether podgpu needs the list to start.
        watching: context manager to use around calls of `wait`.
    """

    place = "counters.rows"
    vital = True
    watching = nullcontext()

    def __init__(self, rows: Iterable[str]) -> None:
        self._text = text_of_rows(rows)
        self._asked = asyncio.Event()

    async def read(self) -> str:
        """Return the text of the list."""
        self._asked.clear()
        return self._text

    async def wait(self) -> None:
        """Wait until `ask` is called."""
        await self._asked.wait()

    def ask(self) -> None:
        """Let `wait` return."""
        self._asked.set()


Origin: TypeAlias = ListFile | ListConfigMap | ListRows
"""Where a list is stored."""


def origin_of(setting: Counters, connect: Connect) -> Origin | None:
    """Return where the list is stored; None if no list is configured."""
    if setting.file is not None:
        return ListFile(setting.file)
    if setting.configmap:
        return ListConfigMap(setting.configmap, setting.kubeconfig, connect)
    return ListRows(setting.rows) if setting.rows else None
