"""OTLP receivers for tests: real servers in this process, with responses that a test sets."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pipeline.delivery.contract import Record
from pipeline.net.grpc_library import keep_library
from pipeline.net.protobuf_schema import Schema

METHOD: Final = "Export"
SERVICE: Final = "opentelemetry.proto.collector.metrics.v1.MetricsService"
LOGS_SERVICE: Final = "opentelemetry.proto.collector.logs.v1.LogsService"
SCHEMA: Final = Schema.load_from_package("sinks.otlp.transport", "status.binpb")


def status(code: int, message: str, retry: float | None = None, *, others: int = 0) -> bytes:
    """Return an encoded google.rpc.Status, with RetryInfo if there is a delay."""
    encoded = SCHEMA.message("podgpu.otlp.Status")(code=code, message=message)
    for number in range(others):
        encoded.details.add(
            type_url=f"type.googleapis.com/google.rpc.Other{number}", value=b"\x08\x01"
        )
    if retry is not None:
        info = SCHEMA.message("podgpu.otlp.RetryInfo")()
        info.retry_delay.seconds = int(retry // 1)
        info.retry_delay.nanos = int(retry % 1 * 1e9)
        encoded.details.add(
            type_url="type.googleapis.com/google.rpc.RetryInfo", value=info.SerializeToString()
        )
    return bytes(encoded.SerializeToString())


def record(number: int = 0, *, size: int = 0, points: int = 1) -> Record:
    """Return a record of one metric, with a description of `size` bytes."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=f"m{number}")
    metric.description = "".join(chr(33 + at * 7 % 90) for at in range(size))
    for at in range(points):
        metric.gauge.data_points.add(time_unix_nano=1_800_000_000_000_000_000 + at, as_int=at)
    return Record(request.SerializeToString(), points, 1_800_000_000_000_000_000)


def names(message: bytes) -> list[str]:
    """Return the names of the metrics in a message."""
    request = ExportMetricsServiceRequest.FromString(message)
    return [
        metric.name
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


class GrpcReceiver:
    """A gRPC receiver.

    Attributes:
        messages: received messages with metrics.
        metadata: the metadata of each.
        answer: makes the response; called with the server's context, returns bytes or aborts.
        logs: received messages with log records; None without a service for them.
        answer_logs: makes the response to those.
        port: the port on which it listens.
    """

    def __init__(self, *, logs: bool = True) -> None:
        self.messages: list[bytes] = []
        self.logs: list[bytes] | None = [] if logs else None
        self.answer_logs: Callable[[Any], Awaitable[bytes]] = _nothing
        self.metadata: list[dict[str, Any]] = []
        self.peers: list[str] = []
        self.answer: Callable[[Any], Awaitable[bytes]] = _nothing
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _export(self, message: bytes, context: Any) -> bytes:
        self.messages.append(message)
        self.metadata.append(dict(context.invocation_metadata()))
        self.peers.append(context.peer())
        return await self.answer(context)

    async def _export_logs(self, message: bytes, context: Any) -> bytes:
        assert self.logs is not None
        self.logs.append(message)
        return await self.answer_logs(context)

    @asynccontextmanager
    async def serving(
        self,
        address: str = "127.0.0.1:0",
        *,
        certificate: tuple[bytes, bytes] | None = None,
        clients: bytes | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> AsyncIterator["GrpcReceiver"]:
        """Serve; with TLS if there is a `certificate`, and only for clients of the CA `clients`."""
        keep_library()
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *options])
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )
        if self.logs is not None:
            handler = grpc.unary_unary_rpc_method_handler(self._export_logs)
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(LOGS_SERVICE, {METHOD: handler}),)
            )
        if certificate is None:
            self.port = server.add_insecure_port(address)
        else:
            chain, key = certificate
            credentials = grpc.ssl_server_credentials(
                [(key, chain)], clients, require_client_auth=clients is not None
            )
            self.port = server.add_secure_port(address, credentials)
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)


def fails(code: str, details: str = "", trailer: bytes = b"") -> Callable[[Any], Awaitable[bytes]]:
    async def answer(context: Any) -> bytes:
        metadata = (("grpc-status-details-bin", trailer),) if trailer else ()
        await context.abort(getattr(grpc.StatusCode, code), details, metadata)
        return b""

    return answer


def responds(body: bytes) -> Callable[[Any], Awaitable[bytes]]:
    async def answer(_: Any) -> bytes:
        return body

    return answer


async def never(_: Any) -> Any:
    await asyncio.sleep(60)


async def _nothing(_: Any) -> bytes:
    return b""


class HttpReceiver:
    """An HTTP receiver.

    Attributes:
        messages: received messages with metrics, decompressed.
        bodies: the request bodies as received.
        headers: the headers of each request, with names in lower case.
        paths: the request paths.
        peers: the address of the client of each request.
        answer: makes the response.
        logs: received messages with log records, decompressed; None without a path for them.
        answer_logs: makes the response to those.
        port: the port on which it listens.
    """

    def __init__(self, *, logs: bool = True) -> None:
        self.logs: list[bytes] | None = [] if logs else None
        self.answer_logs: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = answers(200)
        self.bodies: list[bytes] = []
        self.messages: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.peers: list[Any] = []
        self.answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = answers(200)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        compressed = request.headers.get("Content-Encoding") == "gzip"
        if request.path.endswith("/v1/logs"):
            if self.logs is None:
                return web.Response(status=404)
            self.logs.append(gzip.decompress(body) if compressed else body)
            return await self.answer_logs(request)
        self.bodies.append(body)
        self.messages.append(gzip.decompress(body) if compressed else body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.paths.append(request.raw_path)
        self.peers.append(request.transport and request.transport.get_extra_info("peername"))
        return await self.answer(request)

    @asynccontextmanager
    async def serving(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        context: ssl.SSLContext | None = None,
        keepalive: float = 75.0,
    ) -> AsyncIterator["HttpReceiver"]:
        server = web.Server(self._take, keepalive_timeout=keepalive, auto_decompress=False)
        runner = web.ServerRunner(server, shutdown_timeout=0.05)
        await runner.setup()
        site = web.TCPSite(runner, host, port, ssl_context=context)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        try:
            yield self
        finally:
            await runner.cleanup()


def answers(
    code: int, body: bytes = b"", content_type: str = "application/x-protobuf", **headers: str
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=code, body=body, content_type=content_type, headers=fields)

    return answer
