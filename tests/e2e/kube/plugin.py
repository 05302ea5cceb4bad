"""A device plugin with simulated devices."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from tests.e2e.kube import cdi, device_nodes, folders, kubelet_state
from tests.e2e.kube.background import Background
from tests.e2e.kube.messages import Message, handler, message, method
from tests.e2e.processes import wait_until

Form = Callable[[Sequence[str]], Mapping[str, Any]]
"""Returns the fields of a ContainerAllocateResponse for device ids."""

_EVERY = 0.05
"""Seconds between two checks of the kubelet's socket."""


def by_env(ids: Sequence[str]) -> Mapping[str, Any]:
    return {"envs": {"NVIDIA_VISIBLE_DEVICES": ",".join(ids)}}


def by_cdi(kind: str) -> Form:
    """Return a form with CDI names, which `cdi.write` has to describe."""
    return lambda ids: {"cdi_devices": [{"name": cdi.qualified(kind, each)} for each in ids]}


def by_nodes(minors: Mapping[str, int], folder: Path) -> Form:
    """Return a form with device nodes, which are created in a folder."""
    made = device_nodes.make(minors, folder)
    return lambda ids: {"devices": [made[each] for each in ids]}


def _as_asked(ids: Sequence[str]) -> Sequence[str]:
    return ids


class DevicePlugin:
    """Serves one resource, and registers whenever a kubelet starts."""

    def __init__(
        self,
        background: Background,
        resource: str,
        ids: Iterable[str],
        *,
        numa: Mapping[str, int] | None = None,
        form: Form = by_env,
        substitute: Callable[[Sequence[str]], Sequence[str]] | None = None,
    ) -> None:
        """`numa` has NUMA nodes by device. `substitute` returns the ids that the container gets
        instead of those that the kubelet chose.
        """
        self.resource = resource
        self.numa = dict(numa or {})
        self.form = form
        self.substitute = substitute or _as_asked
        self.asked: list[list[str]] = []
        """The device ids of each request of the kubelet."""
        self.registrations = 0
        self._health = dict.fromkeys(ids, True)
        self._background = background
        self._socket = folders.DEVICE_PLUGINS / f"{resource.replace('/', '-')}.sock"
        self._changed = asyncio.Event()
        self._watched = 0
        """Number of lists sent to the kubelet since the last registration."""
        self._task: asyncio.Task[None] | None = None

    # Called in the test's thread.

    def start(self) -> None:
        """Start the server, and wait until the kubelet has the devices."""
        self._background.do(self._start())
        self.wait_registered()

    def stop(self) -> None:
        self._background.do(self._stop())

    def wait_registered(self, times: int = 1) -> None:
        """Wait until it has registered this many times and the kubelet has its list."""
        wait_until(
            lambda: self.registrations >= times and self._watched > 0 and self._known(),
            f"{self.resource} is registered {times} times",
        )

    def _known(self) -> bool:
        return kubelet_state.registered(self.resource) == sorted(self.healthy)

    @property
    def healthy(self) -> list[str]:
        return [each for each, well in self._health.items() if well]

    def set_health(self, device: str, healthy: bool) -> None:
        self._set({**self._health, device: healthy})

    def set_devices(self, ids: Iterable[str]) -> None:
        """Replace the devices; all are healthy."""
        self._set(dict.fromkeys(ids, True))

    def _set(self, health: dict[str, bool]) -> None:
        """Change the list, and wait until the kubelet has it if one is connected."""
        self._background.do(self._change(health))
        if self._watched:
            wait_until(self._known, f"the kubelet has {health}")

    # Called in the event loop.

    async def _start(self) -> None:
        assert self._task is None, "already started"
        self._task = asyncio.create_task(self._keep_registered())

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _change(self, health: dict[str, bool]) -> None:
        self._health = health
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep_registered(self) -> None:
        """Restart the server for each new kubelet socket: the kubelet's start deletes plugin
        sockets."""
        while True:
            kubelet = _identity()
            if kubelet is None:
                await asyncio.sleep(_EVERY)
                continue
            server = await self._serve()
            try:
                if await self._register():
                    while _identity() == kubelet:
                        await asyncio.sleep(_EVERY)
            finally:
                self._watched = 0
                await server.stop(None)
                self._socket.unlink(missing_ok=True)
            await asyncio.sleep(_EVERY)

    async def _serve(self) -> grpc.aio.Server:
        methods = {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list_and_watch,
            "Allocate": self._allocate,
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((handler("v1beta1.DevicePlugin", methods),))
        self._socket.unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{self._socket}")
        await server.start()
        return server

    async def _register(self) -> bool:
        request = message("v1beta1.RegisterRequest")(
            version="v1beta1", endpoint=self._socket.name, resource_name=self.resource
        )
        async with grpc.aio.insecure_channel(f"unix://{_kubelet()}") as channel:
            try:
                await method(channel, "v1beta1.Registration", "Register")(request, timeout=10)
            except grpc.aio.AioRpcError:
                return False  # no kubelet serves the socket
        self.registrations += 1
        return True

    async def _options(self, _request: Message, _context: object) -> Message:
        return message("v1beta1.DevicePluginOptions")()

    async def _list_and_watch(self, _request: Message, _context: object) -> AsyncIterator[Message]:
        while True:
            changed = self._changed
            yield message("v1beta1.ListAndWatchResponse")(
                devices=[self._device(each, well) for each, well in self._health.items()]
            )
            self._watched += 1
            await changed.wait()

    def _device(self, device: str, well: bool) -> dict[str, Any]:
        described: dict[str, Any] = {"ID": device, "health": "Healthy" if well else "Unhealthy"}
        if device in self.numa:
            described["topology"] = {"nodes": [{"ID": self.numa[device]}]}
        return described

    async def _allocate(self, request: Message, _context: object) -> Message:
        answers = []
        for container in request.container_requests:
            asked = list(container.devices_ids)
            self.asked.append(asked)
            answers.append(self.form(self.substitute(asked)))
        return message("v1beta1.AllocateResponse")(container_responses=answers)


def _kubelet() -> Path:
    return folders.DEVICE_PLUGINS / "kubelet.sock"


def _identity() -> tuple[int, int] | None:
    """Return the identity of the kubelet's socket; None if it does not exist."""
    try:
        found = _kubelet().stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
