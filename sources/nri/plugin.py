"""The plugin: answers the runtime, and notes what it tells.

An answer is sent before anything is done about the question: all of a node's containers wait for
it. Knows no socket, no clock and no thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipeline.base.safe_text import line
from sources.nri import messages, mux, ttrpc
from sources.nri.container_parser import Container, read_container
from sources.nri.container_table import MAX_CONTAINERS, ContainerTable
from sources.nri.errors import ConnectionLostError
from sources.nri.koordinator_injection import NO_ADJUSTMENT
from sources.nri.messages import METHODS, PLUGIN_SERVICE, Event, Subject
from sources.nri.pod_parser import Pod, read_pod
from sources.nri.text_limits import plausible

Send = Callable[[int, ttrpc.Encoded], None]
"""Sends a message on an id, whole."""

Inject = Callable[[bytes, ContainerTable], bytes]
"""Answers CreateContainer."""

_OBSERVED: Final = (
    Event.STOP_POD_SANDBOX,
    Event.REMOVE_POD_SANDBOX,
    Event.POST_CREATE_CONTAINER,
    Event.POST_START_CONTAINER,
    Event.STOP_CONTAINER,
    Event.REMOVE_CONTAINER,
)
_REGISTERING: Final = 1
"""Number of the one call that the plugin makes."""
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Identity:
    """As what the plugin registers."""

    name: str
    index: str


def mask(*, injecting: bool) -> int:
    """Return the events that the plugin asks for.

    None of those of an observer can make a pod or a container fail, whatever the plugin does:
    RunPodSandbox and StartContainer could, and tell nothing that the others don't. Never 0, which
    means all; never ValidateContainerAdjustment, which would make every container depend on podgpu.
    """
    wanted = (*_OBSERVED, Event.CREATE_CONTAINER) if injecting else _OBSERVED
    return sum(event.bit for event in wanted)


class Plugin:
    """One connection's conversation.

    Attributes:
        runtime: who is at the other end, once it has said so.
        configured: the runtime knows which events are wanted.
        synchronized: it has told of all pods and containers.

    Args:
        identity: as what it registers.
        container_table: takes what is told.
        send: takes answers.
        inject: answers CreateContainer; None where nothing is injected.
    """

    def __init__(
        self,
        identity: Identity,
        container_table: ContainerTable,
        send: Send,
        inject: Inject | None = None,
    ) -> None:
        self.runtime = messages.Runtime("", "")
        self.configured = False
        self.synchronized = False
        self._identity = identity
        self._container_table = container_table
        self._send = send
        self._inject = inject
        self._frames = mux.Demultiplexer()
        self._calls = ttrpc.Assembler()
        self._answers = ttrpc.Assembler()

    def register(self) -> None:
        """Ask to be taken. Whatever the runtime sends has to be fed from now on."""
        argument = messages.register(self._identity.name, self._identity.index)
        call = ttrpc.Request(messages.RUNTIME_SERVICE, "RegisterPlugin", argument)
        self._send(mux.RUNTIME, ttrpc.request(_REGISTERING, call, _SECONDS))

    def feed(self, data: bytes) -> None:
        """Take what came from the runtime, in pieces of any size.

        Raises:
            LostError: the connection has to be closed.
        """
        for stream, piece in self._frames.feed(data):
            if stream == mux.PLUGIN:
                for frame in self._calls.feed(piece):
                    if frame.kind == ttrpc.REQUEST:
                        self._serve(frame.stream, ttrpc.read_request(frame.data))
            else:
                for frame in self._answers.feed(piece):
                    if frame.kind == ttrpc.RESPONSE and frame.stream == _REGISTERING:
                        _check(ttrpc.read_response(frame.data))

    def _serve(self, stream: int, call: ttrpc.Request) -> None:
        if call.service != PLUGIN_SERVICE:
            self._refuse(stream, f"service {line(call.service, 100)}")
            return
        match call.method:
            case "Configure":
                self._reply(stream, messages.configured(mask(injecting=self._inject is not None)))
                self.runtime = messages.read_runtime(call.payload)
                self.configured = True
            case "Synchronize":
                chunk = messages.read_chunk(call.payload)
                self._reply(stream, messages.synchronized(more=chunk.more))
                self._add_chunk(chunk)
            case "CreateContainer":
                self._reply(stream, self._adjustment(call.payload))
            case "StateChange":
                self._reply(stream)
                self._on_event(*messages.read_state_change(call.payload))
            case "Shutdown":
                self._reply(stream)
            case method if method in METHODS:
                # Never refused, wanted or not: it might be a pod's beginning that fails by it.
                self._reply(stream)
                if METHODS[method] in _OBSERVED:
                    self._on_event(METHODS[method], messages.read_subject(call.payload))
            case method:
                self._refuse(stream, f"method {line(method, 100)}")

    def _reply(self, stream: int, payload: bytes = b"") -> None:
        self._send(mux.PLUGIN, ttrpc.success(stream, payload))

    def _refuse(self, stream: int, what: str) -> None:
        self._send(mux.PLUGIN, ttrpc.failure(stream, ttrpc.Code.UNIMPLEMENTED, what))

    def _adjustment(self, payload: bytes) -> bytes:
        if self._inject is None:
            return NO_ADJUSTMENT
        try:
            return self._inject(payload, self._container_table)
        except Exception as error:  # noqa: BLE001 - no fault of ours may cost a container
            about = type(error).__name__
            self._container_table.warn(about, f"nothing is injected: {about}: {line(str(error))}")
            return NO_ADJUSTMENT

    def _add_chunk(self, chunk: messages.Chunk) -> None:
        pods: dict[str, Pod] = {}
        containers: dict[str, Container] = {}
        if max(len(chunk.pods), len(chunk.containers)) > MAX_CONTAINERS:
            raise ConnectionLostError(f"it listed more than {MAX_CONTAINERS} pods or containers")
        for data in chunk.pods:
            if data and (pod := read_pod(data)) is not None:
                pods[pod.sandbox] = pod
        for data in chunk.containers:
            if data and (container := read_container(data)) is not None:
                containers[container.id] = container
        self._container_table.add_listed(pods, containers)
        if not chunk.more:
            self._container_table.complete_list()
            self.synchronized = True

    def _on_event(self, event: int, subject: Subject) -> None:
        match event:
            case Event.POST_CREATE_CONTAINER | Event.POST_START_CONTAINER:
                pod, container = read_pod(subject.pod), read_container(subject.container)
                if pod is not None and container is not None:
                    self._container_table.container_started(pod, container)
            case Event.STOP_CONTAINER | Event.REMOVE_CONTAINER:
                # The pod may be gone already.
                self._container_table.container_stopped(
                    messages.read_container(subject.container).id
                )
            case Event.STOP_POD_SANDBOX | Event.REMOVE_POD_SANDBOX:
                if plausible(sandbox := messages.read_pod(subject.pod).id):
                    self._container_table.pod_stopped(sandbox)
            case _:
                pass


def _check(response: ttrpc.Response) -> None:
    if response.code != ttrpc.Code.OK:
        raise ConnectionLostError(f"it refuses the plugin: {line(response.message)}")
