"""A fake kubelet: a real gRPC server on a pod-resources socket, controlled by the test."""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

# Without this, gRPC writes exceptions of calls to stderr. It is read when gRPC is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from pipeline.net.protobuf_schema import Schema

V1 = frozenset({"v1/List", "v1/GetAllocatableResources"})
V1ALPHA1 = frozenset({"v1alpha1/List"})

_SCHEMA = Schema.load_from_package("sources.podresources", "podresources.binpb")


def message(name: str, /, **fields: Any) -> Any:
    return _SCHEMA.message(f"v1.{name}")(**fields)


def devices(resources: Mapping[str, Iterable[str]]) -> list[Any]:
    """Return devices in the kubelet's form: one entry for each id."""
    return [
        message("ContainerDevices", resource_name=resource, device_ids=[each])
        for resource, ids in resources.items()
        for each in ids
    ]


def claim(*triples: str, cdi: Sequence[str] = ()) -> Any:
    """Return a resource claim of a container: `driver/pool/device` each, or only CDI names."""
    resources = [
        message(
            "ClaimResource",
            **dict(zip(("driver_name", "pool_name", "device_name"), each.split("/"), strict=True)),
            cdi_devices=[{"name": f"k8s.{each.split('/')[0]}/claim=uid-{each.split('/')[2]}"}],
        )
        for each in triples
    ]
    if cdi:
        resources.append(message("ClaimResource", cdi_devices=[{"name": name} for name in cdi]))
    return message("DynamicResource", claim_resources=resources)


def pod(
    name: str,
    resources: Mapping[str, Iterable[str]] | None = None,
    *,
    namespace: str = "ml",
    container: str = "main",
    claims: Sequence[Any] = (),
) -> Any:
    """Return a pod with one container."""
    held = message(
        "ContainerResources",
        name=container,
        devices=devices(resources or {}),
        dynamic_resources=claims,
    )
    return message("PodResources", name=name, namespace=namespace, containers=[held])


class FakeKubelet:
    """Serves the socket. All attributes may be changed while it runs.

    Attributes:
        pods: the pods with their devices.
        offered: the allocatable devices by resource.
        methods: the methods that exist. All others return UNIMPLEMENTED.
        disabled: the methods that are switched off.
        padding: the number of additional bytes in a response to List.
        hangs: no request gets a response.
        rejections: how many of the next requests are refused, as by the kubelet's rate limiter.
        error: the error that List returns, a code and a text.
        garbled: by method, a function that returns an error text for the number of the call.
        calls: the number of calls by method.
        lists: the times at which List was called, by the clock of the loop.
    """

    def __init__(self, path: Path, methods: Iterable[str] = V1 | V1ALPHA1) -> None:
        self.path = path
        self.methods = set(methods)
        self.disabled: set[str] = set()
        self.pods: list[Any] = []
        self.offered: dict[str, list[str]] = {}
        self.padding = 0
        self.delay = 0.0
        self.hangs = False
        self.rejections = 0
        self.error: tuple[grpc.StatusCode, str] | None = None
        self.garbled: dict[str, Callable[[int], str]] = {}
        self.calls: Counter[str] = Counter()
        self.lists: list[float] = []
        self.authorities: set[str] = set()
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        _keep_library()
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._server.add_insecure_port(f"unix:{quote(str(self.path))}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop immediately, as if killed, without finishing requests. The socket is removed."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def answer(self, method: str, request: bytes, context: Any) -> bytes:
        self.calls[method] += 1
        if method.endswith("/List"):
            self.lists.append(asyncio.get_running_loop().time())
        if self.hangs:
            await asyncio.sleep(3600)
        await asyncio.sleep(self.delay)
        if self.rejections:
            self.rejections -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        if self.error is not None and method.endswith("/List"):
            await context.abort(*self.error)
        if method in self.garbled:
            text = self.garbled[method](self.calls[method])
            await context.abort(grpc.StatusCode.INTERNAL, text)
        if method in self.disabled:
            await context.abort(grpc.StatusCode.UNKNOWN, f"Pod Resources API {method} disabled")
        if method.endswith("/List"):
            return self._listed()
        answer = message("AllocatableResourcesResponse", devices=devices(self.offered))
        encoded: bytes = answer.SerializeToString()
        return encoded

    def _listed(self) -> bytes:
        pods = [type(each).FromString(each.SerializeToString()) for each in self.pods]
        random.shuffle(pods)
        for each in pods:
            for container in each.containers:
                entries = list(container.devices)
                random.shuffle(entries)
                del container.devices[:]
                container.devices.extend(entries)
        answer: bytes = message("ListPodResourcesResponse", pod_resources=pods).SerializeToString()
        # Field 100, a string: an unknown field.
        return answer + (b"\xa2\x06" + _varint(self.padding) + bytes(self.padding))


@cache
def _keep_library() -> None:
    """Keep gRPC initialised. Otherwise it shuts down after each test and leaks a socket."""
    grpc.aio.init_grpc_aio()


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc] # it has no types
    def __init__(self, kubelet: FakeKubelet) -> None:
        self._kubelet = kubelet

    def service(self, handler_call_details: Any) -> Any:
        version, _, method = handler_call_details.method.removeprefix("/").partition(
            ".PodResourcesLister/"
        )
        name = f"{version}/{method}"
        if name not in self._kubelet.methods:
            self._kubelet.calls[name] += 1
            return None

        async def answer(request: bytes, context: Any) -> bytes:
            return await self._kubelet.answer(name, request, context)

        return grpc.unary_unary_rpc_method_handler(answer)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


async def _serve(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod("a", {"nvidia.com/gpu": ["GPU-0"]})]
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
