"""Where the text of a list comes from, now and whenever it may have changed."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

import orjson

from config.schema import Counters
from config.value_types import ByteSize
from pipeline.base.backoff import Backoff
from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.files import AbsentError, UnreadableError, Watcher, read_file

MAX_SIZE: Final = ByteSize.parse("1MiB")
"""The largest list that is read: no ConfigMap is larger, and a list is a few kilobytes."""

_POLL: Final = 10.0
"""Seconds between looks at a file where no event comes: network file systems, odd mounts."""

_SETTLE: Final = 0.2
_UNSETTLED: Final = 2.0
"""Seconds without a change after which a file is read, and for how long that is waited for: who
truncates and writes has half a list there in between."""

_ASK: Final = 60.0
"""Seconds between two requests for a ConfigMap. A watch would need more rights than dcgm-exporter's
role gives: it may `get` the one that it names."""

_ANSWER: Final = 10.0
"""Seconds that an API server has for one answer."""

_KEY: Final = "metrics"

Connect: TypeAlias = Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]


class ListUnavailableError(Exception):
    """The list can't be read now; the text says why and what helps.

    Attributes:
        dedup_key: equal for two errors if the second is no news after the first.
    """

    def __init__(self, text: str, kind: object = None) -> None:
        super().__init__(text)
        self.dedup_key = text if kind is None else kind


class Origin(Protocol):
    """Where a list comes from; `async with` for as long as it is followed.

    Attributes:
        place: what it is, for people.
        vital: podgpu doesn't start without it.
    """

    place: str
    vital: bool

    async def __aenter__(self) -> Self:
        """Begin to look for changes."""
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """End it."""
        ...

    async def read(self) -> str:
        """Return the text.

        Raises:
            UnheardError: it can't be read.
        """
        ...

    async def wait(self) -> None:
        """Wait until it may have changed, or until somebody asked."""
        ...

    def ask(self) -> None:
        """Let `wait` end."""
        ...


def origin_of(setting: Counters, connect: Connect) -> Origin | None:
    """Return where the list comes from; None if there is none."""
    if setting.file is not None:
        return ListFile(setting.file)
    if setting.configmap:
        return ListConfigMap(setting.configmap, setting.kubeconfig, connect)
    return None


def read_list(path: Path, *, orphan: bool = False) -> str:
    """Read a list from a file; blocks while it does.

    Args:
        path: the file.
        orphan: a file that was replaced outside its mount will do.

    Raises:
        UnheardError: it can't be read.
    """
    try:
        content = read_file(path, MAX_SIZE, None, orphan=orphan)
    except AbsentError as error:
        raise ListUnavailableError(f"{error}; check the path, and that it is mounted") from error
    except UnreadableError as error:
        raise ListUnavailableError(str(error)) from error
    # A help text in another encoding is no reason to do without its row.
    return (content.data or b"").decode("utf-8", "replace")


class ListFile:
    """A file, watched with all that its path leads through."""

    vital = True

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path
        self._watcher = Watcher(path)
        self._following = ExitStack()
        self._asked = False
        self._never_read = True

    async def __aenter__(self) -> Self:
        self._following.enter_context(self._watcher)
        self._watcher.open()
        await asyncio.to_thread(self._watcher.arm)
        # It may have changed since it was read and before it was watched.
        self._watcher.wake()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.close()

    async def read(self) -> str:
        """Return the text; what comes after this is seen by `wait`."""
        self._watcher.forget()
        self._asked = False
        return await asyncio.to_thread(self._look)

    def _look(self) -> str:
        self._watcher.arm()
        # One that a mount kept is better than no start, and then a fault that is told.
        text = read_list(self._path, orphan=self._never_read)
        self._never_read = False
        return text

    async def wait(self) -> None:
        """Wait for a change, and then for its end."""
        self._watcher.open()
        if not await self._watcher.wait(self._watcher.max_wait(_POLL)):
            return
        loop = asyncio.get_running_loop()
        latest = loop.time() + _UNSETTLED
        while not self._asked and loop.time() < latest:
            self._watcher.forget()
            # The path may lead elsewhere now, and the writer be at it there.
            await asyncio.to_thread(self._watcher.arm)
            if not await self._watcher.wait(_SETTLE):
                return

    def ask(self) -> None:
        """Let `wait` end."""
        self._asked = True
        self._watcher.wake()


class ListConfigMap:
    """The key `metrics` of a ConfigMap, asked for again and again."""

    vital = False

    def __init__(self, name: str, kubeconfig: Path | None, connect: Connect) -> None:
        self.place = f"ConfigMap {name}"
        namespace, _, name = name.partition(":")
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._kubeconfig = kubeconfig
        self._connect = connect
        self._asked = asyncio.Event()
        self._backoff = Backoff(max_delay=_ASK)
        self._pause = _ASK

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> str:
        """Return the text."""
        self._asked.clear()
        self._pause = self._backoff.delay(0)
        text = self._text(await self._answer())
        self._backoff, self._pause = Backoff(max_delay=_ASK), _ASK
        return text

    async def _answer(self) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER), self._connect(self._kubeconfig) as api:
                return await api.get(self._path, {})
        except TimeoutError:
            raise ListUnavailableError(f"{self.place}: no answer within {_ANSWER:.0f} s") from None
        except ApiError as error:
            raise ListUnavailableError(f"{self.place}: {error}", error.dedup_key) from error
        except TransientError as error:
            raise ListUnavailableError(f"{self.place}: {error}") from error

    def _text(self, answer: bytes) -> str:
        try:
            data = orjson.loads(answer).get("data") or {}
            text = data.get(_KEY)
        except (orjson.JSONDecodeError, AttributeError):
            raise ListUnavailableError(f"{self.place}: the answer is no ConfigMap") from None
        if not isinstance(text, str):
            keys = ", ".join(data) or "none"
            raise ListUnavailableError(
                f"{self.place}: has no key {_KEY}, which is to hold the list; its keys: {keys}"
            )
        return text

    async def wait(self) -> None:
        """Wait until it is to be asked for again."""
        try:
            async with asyncio.timeout(self._pause):
                await self._asked.wait()
        except TimeoutError:
            return

    def ask(self) -> None:
        """Let `wait` end."""
        self._asked.set()
