"""Listeners for tests, and a minimal HTTP client with access to the raw bytes."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

from config.value_types import ListenAddress
from pipeline.component.contracts import HttpHandler, HttpRequest, HttpResponse
from pipeline.http.allowed_hosts import Hosts
from pipeline.http.limits import Limits
from pipeline.http.listener_registry import ListenerRegistry

LOCAL = ListenAddress.parse("127.0.0.1:0")


def listeners(hosts: Hosts | None = None, /, **limits: float) -> ListenerRegistry:
    return ListenerRegistry(
        node="node-<1>",
        version="1.2.3",
        health=lambda: (True, "ok"),
        ready=lambda: (False, "no readings yet"),
        limits=Limits(**limits),  # type: ignore[arg-type]
        hosts=hosts or Hosts(),
    )


def says(text: str | bytes) -> HttpHandler:
    body = text.encode() if isinstance(text, str) else text

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(body)

    return handler


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def answer(self, *, body: bool = True) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        length = int(headers.get("content-length", "0")) if body else 0
        return int(head[0].split()[1]), headers, await self.reader.readexactly(length)

    async def get(self, path: str, *lines: str, method: str = "GET") -> tuple[int, str]:
        self.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]))
        status, _, body = await self.answer(body=method != "HEAD")
        return status, body.decode()

    async def ended(self) -> bool:
        """Wait until the other side closes the connection; ignore what it still sends."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        return True


class Clients:
    """Connections that are closed at the end of the test."""

    def __init__(self) -> None:
        self._open: list[Client] = []

    async def connect(
        self, port: int, context: ssl.SSLContext | None = None, *, source: str = "127.0.0.1"
    ) -> Client:
        """Connect from a loopback address."""
        streams = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, local_addr=(source, 0)
        )
        self._open.append(Client(*streams))
        return self._open[-1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._open:
            client.writer.transport.abort()
        await asyncio.sleep(0)


Connect = Callable[[int], Awaitable[Client]]
