"""The NRI plugin: responds to the runtime's requests, and records the containers it reports.

Most responses are sent before the event in the request is recorded, because all containers of the
node wait for them. The plugin uses no socket, clock or thread itself.
"""

from collections.abc import Callable
from typing import Any, Final

from pipeline.base.safe_text import line
from sources.nri import mux, ttrpc
from sources.nri.container_table import MAX_CONTAINERS, ContainerTable
from sources.nri.koordinator_adjustment import NO_ADJUSTMENT
from sources.nri.messages import EVENTS, PLUGIN_SERVICE, RUNTIME_SERVICE, decode, encode
from sources.nri.mux import ConnectionLostError
from sources.nri.options import Options
from sources.nri.parsers import plausible, read_container, read_pod

Send = Callable[[int, ttrpc.Encoded], None]
"""Function that sends a complete message on a stream."""

Inject = Callable[[bytes, ContainerTable], bytes]
"""Function that returns the response to CreateContainer."""

_OBSERVED: Final = (
    "StopPodSandbox",
    "RemovePodSandbox",
    "PostCreateContainer",
    "PostStartContainer",
    "StopContainer",
    "RemoveContainer",
)
_REGISTER_CALL: Final = 1
"""Number of the call to register, the only request that the plugin sends."""
_REGISTER_TIMEOUT: Final = 10.0


def mask(*, injecting: bool) -> int:
    """Return the mask of the events that the plugin subscribes to.

    The events in `_OBSERVED` cannot make a pod or a container fail, whatever the plugin does.
    RunPodSandbox and StartContainer could, and they contain nothing that the others do not. The
    mask is never 0, which means all events. It never contains ValidateContainerAdjustment: with
    that event, every container depends on podgpu.
    """
    wanted = (*_OBSERVED, "CreateContainer") if injecting else _OBSERVED
    return sum(1 << EVENTS.index(event) for event in wanted)


class Plugin:
    """Handles the requests of one connection.

    Attributes:
        runtime: name and version of the runtime; empty until the runtime has reported them.
        configured: whether the runtime has requested the event mask, and podgpu has sent it.
        synchronized: whether the runtime has listed all pods and containers.

    Args:
        options: the options, with the name and index to register.
        container_table: receives the containers.
        send: function that sends messages.
        inject: function that returns the response to CreateContainer; None if podgpu does not
            inject GPUs.
    """

    def __init__(
        self,
        options: Options,
        container_table: ContainerTable,
        send: Send,
        inject: Inject | None = None,
    ) -> None:
        self.runtime = ""
        self.configured = False
        self.synchronized = False
        self._options = options
        self._container_table = container_table
        self._send = send
        self._inject = inject
        self._frames = mux.Demultiplexer()
        self._calls = ttrpc.Assembler()
        self._answers = ttrpc.Assembler()

    def register(self) -> None:
        """Register the plugin. The caller must then pass all data from the runtime to `feed`."""
        own = self._options
        argument = encode("RegisterPluginRequest", plugin_name=own.name, plugin_idx=own.index)
        call = ttrpc.request(
            _REGISTER_CALL, RUNTIME_SERVICE, "RegisterPlugin", argument, _REGISTER_TIMEOUT
        )
        self._send(mux.RUNTIME, call)

    def feed(self, data: bytes) -> None:
        """Process data from the runtime, which may be cut at any byte, and send responses.

        Raises:
            ConnectionLostError: the connection has to be closed; the text has the reason.
        """
        for stream, piece in self._frames.feed(data):
            if stream == mux.PLUGIN:
                for frame in self._calls.feed(piece):
                    if frame.kind == ttrpc.REQUEST:
                        self._serve(frame.stream, ttrpc.decode("Request", frame.data))
            else:
                for frame in self._answers.feed(piece):
                    if frame.kind == ttrpc.RESPONSE and frame.stream == _REGISTER_CALL:
                        status = ttrpc.decode("Response", frame.data).status
                        if status.code != ttrpc.OK:
                            text = f"the runtime refuses the plugin: {line(status.message)}"
                            raise ConnectionLostError(text)

    def _serve(self, stream: int, call: Any) -> None:
        if call.service != PLUGIN_SERVICE:
            self._refuse(stream, f"service {line(call.service, 100)}")
            return
        match call.method:
            case "Configure":
                # A mask of 0 would mean all events.
                events = mask(injecting=self._inject is not None)
                self._reply(stream, encode("ConfigureResponse", events=events))
                runtime = decode("ConfigureRequest", call.payload)
                name = runtime.runtime_name[:64] or "the runtime"
                self.runtime = f"{name} {runtime.runtime_version[:64]}"
                self.configured = True
            case "Synchronize":
                chunk = decode("SynchronizeRequest", call.payload)
                self._reply(stream, encode("SynchronizeResponse", more=chunk.more))
                self._add_chunk(chunk)
            case "CreateContainer":
                self._reply(stream, self._adjustment(call.payload))
            case "StateChange":
                self._reply(stream)
                change = decode("StateChangeEvent", call.payload)
                if 0 < change.event <= len(EVENTS):
                    self._on_event(EVENTS[change.event - 1], change)
            case "Shutdown":
                self._reply(stream)
            case event if event in EVENTS:
                # Never refuse an event, even without a subscription: a pod could fail to start.
                self._reply(stream)
                if event in _OBSERVED:
                    self._on_event(event, decode("Subject", call.payload))
            case method:
                self._refuse(stream, f"method {line(method, 100)}")

    def _reply(self, stream: int, payload: bytes = b"") -> None:
        self._send(mux.PLUGIN, ttrpc.success(stream, payload))

    def _refuse(self, stream: int, what: str) -> None:
        self._send(mux.PLUGIN, ttrpc.failure(stream, ttrpc.UNIMPLEMENTED, what))

    def _adjustment(self, payload: bytes) -> bytes:
        if self._inject is None:
            return NO_ADJUSTMENT
        try:
            return self._inject(payload, self._container_table)
        except Exception as error:  # noqa: BLE001 - a bug must not prevent a container
            about = type(error).__name__
            self._container_table.warn(
                about, f"a bug in podgpu: no GPU is injected: {about}: {line(str(error))}"
            )
            return NO_ADJUSTMENT

    def _add_chunk(self, chunk: Any) -> None:
        """Add a part of the list; containers may precede their pods."""
        if max(len(chunk.pods), len(chunk.containers)) > MAX_CONTAINERS:
            raise ConnectionLostError(
                f"the runtime listed more than {MAX_CONTAINERS} pods or containers; podgpu "
                "supports no more"
            )
        pods = filter(None, map(read_pod, chunk.pods))
        containers = filter(None, map(read_container, chunk.containers))
        self._container_table.add_listed(
            {pod.sandbox: pod for pod in pods}, {one.id: one for one in containers}
        )
        if not chunk.more:
            self._container_table.complete_list()
            self.synchronized = True

    def _on_event(self, event: str, subject: Any) -> None:
        if event in {"PostCreateContainer", "PostStartContainer"}:
            pod, container = read_pod(subject.pod), read_container(subject.container)
            if pod is not None and container is not None:
                self._container_table.container_started(pod, container)
        elif event in {"StopContainer", "RemoveContainer"}:
            # The pod may have been removed already.
            self._container_table.container_stopped(decode("Container", subject.container).id)
        elif event in {"StopPodSandbox", "RemovePodSandbox"}:
            sandbox = decode("PodSandbox", subject.pod).id
            if plausible(sandbox):
                self._container_table.pod_stopped(sandbox)
