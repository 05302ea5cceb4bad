"""A TCP relay between a sender and a receiver, which records and ends connections."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with an RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


class Relay:
    """A TCP relay, or an HTTP proxy.

    Attributes:
        port: the port on which it listens.
        seen: the bytes that clients sent.
        heads: the request head of each connection, if it is a proxy.
        accepted: number of accepted connections.
        open: the client sides of open connections.
        refuse: the response of a proxy that refuses, if not empty.
    """

    def __init__(self, target: int, *, proxy: bool = False) -> None:
        self.port = 0
        self.seen = bytearray()
        self.heads: list[str] = []
        self.accepted = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.refuse = b""
        self._target = target
        self._proxy = proxy
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Relay"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            for writer in self.open:
                writer.transport.abort()
            await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open.add(writer)
        self.accepted += 1
        target: asyncio.StreamWriter | None = None
        try:
            head = b""
            if self._proxy:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head.decode())
                if self.refuse:
                    writer.write(self.refuse)
                    await writer.drain()
                    return
                if head.startswith(b"CONNECT "):
                    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                    head = b""
            target_reader, target = await asyncio.open_connection("127.0.0.1", self._target)
            target.write(head)
            await asyncio.gather(
                self._pump(reader, target, keep=True), self._pump(target_reader, writer)
            )
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()
            if target is not None:
                target.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep: bool = False
    ) -> None:
        while data := await reader.read(1 << 16):
            if keep:
                self.seen += data
            writer.write(data)
            await writer.drain()
        raise ConnectionAbortedError
