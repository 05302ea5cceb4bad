"""An HTTP server of one page; the test supplies the response."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache

import trustme

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@cache
def authority(name: str = "ours") -> trustme.CA:
    """Return the certificate authority of that name, created for this run of the tests."""
    return trustme.CA()


def says(body: str | bytes, status: str = "200 OK", *headers: str, length: int = -1) -> Answer:
    data = body.encode() if isinstance(body, str) else body

    async def answer(writer: asyncio.StreamWriter) -> None:
        size = len(data) if length < 0 else length
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + data)

    return answer


def streams(piece: bytes) -> Answer:
    """Send the piece repeatedly until the client disconnects."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)

    return answer


async def hangs(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


class PageServer:
    """A server that answers every request in the same way.

    Attributes:
        answer: writes a response; a test can replace it.
        heads: the request heads so far.
        url: the address of the page.
    """

    def __init__(self, answer: Answer, *, secure: bool = False) -> None:
        self.answer = answer
        self.heads: list[str] = []
        self.url = ""
        self._secure = secure
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["PageServer"]:
        context = None
        if self._secure:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority().issue_cert("127.0.0.1").configure_cert(context)
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._secure else 'http'}://127.0.0.1:{port}/metrics"
        try:
            yield self
        finally:
            server.close()
            for writer in self._open:
                writer.transport.abort()
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                await self.answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()
