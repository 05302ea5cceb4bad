"""A fake runtime that plugins connect to. A test decides what happens to its containers."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes.nri import wire
from tests.fakes.nri.connection import Connection, GoneError, RefusedError

EVENTS = (
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "ValidateContainerAdjustment",
)
"""In the order of their numbers, which start at 1."""
REQUESTS = {"CreateContainer", "UpdateContainer", "StopContainer", "UpdatePodSandbox"}
VITAL = {"RunPodSandbox", "CreateContainer", "StartContainer", "UpdateContainer"}
"""Events for which an error of a plugin fails the pod or container."""


class FailedError(Exception):
    """A pod or container could not be created because of a plugin."""


class FakeRuntime:
    """Listens, accepts plugins one at a time, and reports pods and containers to them.

    Attributes:
        plugins: the plugins that are synchronised and connected.
        connections: all connections so far.
        pods: encoded pods by name. A plugin gets them when it is synchronised.
        containers: encoded containers by id, likewise.
        chunk: the number of pods and of containers in one message of the synchronisation.
        seconds: the timeout of a request.
        dropped: the reasons why plugins were dropped.
        welcome: the function that handles a new connection.
        meanwhile: encoded events that are sent between the messages of a synchronisation.
    """

    def __init__(self, path: Path, *, methods: bool = True, seconds: float = 2.0) -> None:
        self.path = path
        self.plugins: list[Connection] = []
        self.connections: list[Connection] = []
        self.pods: dict[str, bytes] = {}
        self.containers: dict[str, bytes] = {}
        self.chunk = 100
        self.seconds = seconds
        self.dropped: list[str] = []
        self.methods = methods
        self.valid = 0x3FFF if methods else 0x07FF
        self.welcome: Callable[[Connection], None] = self.accept
        self.meanwhile: list[tuple[str, bytes]] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if error is None:
            assert [broken for each in self.connections for broken in each.broken] == []

    def start(self) -> None:
        """Listen. The socket of an earlier start is replaced."""
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """Stop as if killed: the file of the socket stays."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for connection in self.connections:
            connection.close()
        self.plugins.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                connection = Connection(sock, len(self.connections))
                self.connections.append(connection)
                try:
                    self.welcome(connection)
                except (GoneError, RefusedError, OSError, queue.Empty) as error:
                    self.dropped.append(repr(error))
                    connection.close()

    def accept(self, connection: Connection) -> None:
        """Register, configure and synchronise a plugin."""
        self.register(connection)
        self.configure(connection)
        with self._lock:
            self.synchronize(connection)
            self.plugins.append(connection)

    def register(self, connection: Connection) -> None:
        call = connection.calls.get(timeout=5)
        if call is None:
            raise GoneError("before it registered")
        stream, method, payload = call
        assert method == "RegisterPlugin"
        connection.registered = wire.one(payload, 1).decode(), wire.one(payload, 2).decode()
        connection.answer(stream)

    def configure(self, connection: Connection) -> None:
        config = wire.message({2: "containerd", 3: "2.4.2", 4: 5000, 5: 2000, 6: "v0.12.2"})
        answer = connection.call("Configure", config, time.monotonic() + self.seconds)
        mask = wire.number(answer, 2) or self.valid
        if mask & ~self.valid:
            raise GoneError("invalid plugin events")
        connection.mask = mask

    def synchronize(self, connection: Connection) -> None:
        deadline = time.monotonic() + self.seconds
        chunks = list(self._chunks())
        for number, (pods, containers) in enumerate(chunks, 1):
            more = number < len(chunks)
            payload = wire.message({1: pods, 2: containers, 3: more})
            answer = connection.call("Synchronize", payload, deadline)
            if wire.number(answer, 2) != more or wire.fields(answer).get(1):
                raise GoneError("the plugin does not handle split sync requests")
            for method, payload in self.meanwhile:
                connection.call(method, payload, deadline)

    def _chunks(self) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        pods, containers = list(self.pods.values()), list(self.containers.values())
        # The last pods follow after their containers, which the protocol allows.
        pods.reverse()
        size = self.chunk
        for at in range(0, max(len(pods), len(containers), 1), size):
            yield pods[at : at + size], containers[at : at + size]

    # Events on the node.

    def notify(self, event: str, pod: bytes, container: bytes = b"") -> list[bytes]:
        """Report an event to all plugins that subscribe to it, and return their responses.

        Raises:
            FailedError: a plugin returned an error for a vital event.
        """
        number = EVENTS.index(event) + 1
        answers: list[bytes] = []
        with self._lock:
            for plugin in list(self.plugins):
                if not plugin.mask >> (number - 1) & 1:
                    continue
                try:
                    answers.append(self._report(plugin, event, number, pod, container))
                except RefusedError as error:
                    if event in VITAL:
                        raise FailedError(f"{event}: {error}") from error
                    self.dropped.append(f"{event}: {error}")
                except GoneError as error:
                    self.dropped.append(repr(error))
                    self.plugins.remove(plugin)
        return answers

    def _report(
        self, plugin: Connection, event: str, number: int, pod: bytes, container: bytes
    ) -> bytes:
        deadline = time.monotonic() + self.seconds
        if event in REQUESTS or (self.methods and not plugin.old_methods):
            try:
                return plugin.call(event, wire.subject(pod, container), deadline)
            except RefusedError as error:
                if event in REQUESTS or error.code != 12:
                    raise
                plugin.old_methods = True
        return plugin.call("StateChange", wire.message({1: number, 2: pod, 3: container}), deadline)

    def run(self, pod: bytes, name: str = "main", **of: object) -> list[bytes]:
        """Create and start a container, and return the adjustments of the plugins."""
        pod_name = wire.one(pod, 2).decode()
        fields: Mapping[str, object] = {"pod": pod_name, "name": name, **of}
        created = wire.container(**fields, state=1)  # type: ignore[arg-type]
        answers = self.notify("CreateContainer", pod, created)
        self.notify("PostCreateContainer", pod, created)
        self.notify("StartContainer", pod, created)
        started = wire.container(**{"pid": 4321, **fields}, state=3)  # type: ignore[arg-type]
        self.pods[pod_name] = pod
        self.containers[wire.one(started, 1).decode()] = started
        self.notify("PostStartContainer", pod, started)
        return answers

    def end(self, pod: bytes, key: str) -> None:
        """Stop and remove a container."""
        container = self.containers.pop(key)
        self.notify("StopContainer", pod, container)
        self.notify("RemoveContainer", pod, container)

    def wait_plugin(self, seconds: float = 5.0) -> Connection:
        """Wait until a plugin is connected, and return it."""
        deadline = time.monotonic() + seconds
        while not self.plugins:
            assert time.monotonic() < deadline, self.dropped
            time.sleep(0.002)
        return self.plugins[-1]
