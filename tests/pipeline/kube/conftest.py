"""HTTP servers with scripted responses, and sessions that connect to them."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest
import trustme

from pipeline.kube.client import Client
from pipeline.kube.credentials import KubeconfigFile, ServiceAccount
from tests.support.kube import Collection, FakeApi, named

Responder = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


@cache
def authority(name: str) -> trustme.CA:
    """Return the certificate authority of a name; it is the same for the whole test run."""
    return trustme.CA()


def says(text: str | bytes, code: int = 200, *headers: str) -> Responder:
    body = text.encode() if isinstance(text, str) else text

    async def respond(head: str, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)

    return respond


def stream(*pieces: bytes, end: bool = True) -> Responder:
    """Send a chunked body; without `end`, the response never ends."""

    async def respond(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if end:
            writer.write(b"0\r\n\r\n")

    return respond


async def hang(head: str, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


class Server:
    """A server that responds to each request in the same way, and keeps the requests."""

    def __init__(self, respond: Responder) -> None:
        self.respond = respond
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.port = 0
        self.connections = 0
        self.open = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, certificate: str = "") -> AsyncIterator["Server"]:
        context = None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority(certificate).issue_cert("127.0.0.1").configure_cert(context)
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
                self.bodies.append(await reader.readexactly(int(length or "0")))
                await self.respond(head, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    def tokens(self) -> list[str]:
        return [head.partition("Bearer ")[2].partition("\r\n")[0] for head in self.heads]


def kubeconfig(path: Path, server: str, user: dict[str, object], **cluster: object) -> Path:
    path.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


class Account(ServiceAccount):
    """The credentials of a pod, in a folder of the test."""

    def write_token(self, token: str) -> None:
        (self.folder / "token").write_text(token)

    def write_authority(self, name: str) -> None:
        authority(name).cert_pem.write_to_path(str(self.folder / "ca.crt"))


def account(folder: Path, server: Server) -> Account:
    made = Account(
        folder / "account",
        {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)},
    )
    made.folder.mkdir()
    made.write_token("sesame")
    made.write_authority("first")
    return made


@asynccontextmanager
async def connected(credentials: ServiceAccount | KubeconfigFile) -> AsyncIterator[Client]:
    client = Client(credentials)
    try:
        await client.load()
        yield client
    finally:
        await client.close()


@pytest.fixture
def config(tmp_path: Path) -> Callable[[Server], KubeconfigFile]:
    def make(server: Server) -> KubeconfigFile:
        address = f"http://127.0.0.1:{server.port}"
        return KubeconfigFile(kubeconfig(tmp_path / "config", address, {"token": "sesame"}))

    return make


@pytest.fixture
def collection() -> Collection:
    collection = Collection()
    collection.put(named("a"))
    return collection


@pytest.fixture
def api(collection: Collection) -> Iterator[FakeApi]:
    api = FakeApi(collection)
    yield api
    for _, kind, query in api.requests:
        assert query["fieldSelector"] == "spec.nodeName=node-1"
        if kind != "list":
            assert 300 <= int(query["timeoutSeconds"]) <= 600
            assert query["allowWatchBookmarks"] == "true"
