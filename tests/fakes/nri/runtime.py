"""A runtime that plugins connect to. It makes no containers: a test says what happens to them."""

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
"""By their numbers, from 1."""
REQUESTS = {"CreateContainer", "UpdateContainer", "StopContainer", "UpdatePodSandbox"}
VITAL = {"RunPodSandbox", "CreateContainer", "StartContainer", "UpdateContainer"}
"""Events that fail the pod or container when a plugin answers with an error."""


class FailedError(Exception):
    """A pod or a container could not be made, and a plugin is to blame."""


class FakeRuntime:
    """Listens, takes plugins one at a time, tells them of pods and containers.

    Attributes:
        plugins: those that are synchronised and still there.
        connections: all there ever were.
        pods: encoded, by name; what a plugin is told at first.
        containers: encoded, by id; likewise.
        chunk: how many pods and how many containers are told at a time.
        seconds: for a request.
        dropped: why plugins were dropped.
        welcome: does what is done with a new connection.
        meanwhile: events, encoded, that are told between the parts of the whole.
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
        self.welcome: Callable[[Connection], None] = self.take
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
        """Listen; the socket of an earlier start is replaced."""
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """Be killed: the socket's file stays."""
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

    def take(self, connection: Connection) -> None:
        """Take a plugin."""
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
            for method, given_out in self.meanwhile:
                connection.call(method, given_out, deadline)

    def _chunks(self) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        pods, containers = list(self.pods.values()), list(self.containers.values())
        # The last pods come after their containers, as they may.
        pods.reverse()
        size = self.chunk
        for at in range(0, max(len(pods), len(containers), 1), size):
            yield pods[at : at + size], containers[at : at + size]

    # What happens on the node.

    def tell(self, event: str, pod: bytes, container: bytes = b"") -> list[bytes]:
        """Tell all plugins that want to know; return what they answer.

        Raises:
            FailedError: a plugin refused what must not be refused.
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
        """Make and start a container; return how plugins adjusted it."""
        pod_name = wire.one(pod, 2).decode()
        make: Mapping[str, object] = {"pod": pod_name, "name": name, **of}
        made = wire.container(**make, state=1)  # type: ignore[arg-type]
        answers = self.tell("CreateContainer", pod, made)
        self.tell("PostCreateContainer", pod, made)
        self.tell("StartContainer", pod, made)
        started = wire.container(**{"pid": 4321, **make}, state=3)  # type: ignore[arg-type]
        self.pods[pod_name] = pod
        self.containers[wire.one(started, 1).decode()] = started
        self.tell("PostStartContainer", pod, started)
        return answers

    def end(self, pod: bytes, key: str) -> None:
        """Let a container end, and take it away."""
        container = self.containers.pop(key)
        self.tell("StopContainer", pod, container)
        self.tell("RemoveContainer", pod, container)

    def wait_plugin(self, seconds: float = 5.0) -> Connection:
        """Return the plugin once there is one."""
        deadline = time.monotonic() + seconds
        while not self.plugins:
            assert time.monotonic() < deadline, self.dropped
            time.sleep(0.002)
        return self.plugins[-1]
