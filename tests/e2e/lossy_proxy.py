"""A proxy in front of an HTTP server that passes on requests, and loses some of the answers."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_LIMIT = 20.0
_END = b"\r\n\r\n"


class LossyProxy:
    """The proxy. Each connection has one request.

    Attributes:
        port: its port on loopback.
        before: is called with the name of each request, before the server gets it.
        loses: is called with the name of each request, after the server has answered it; if it
            returns true, the client gets no answer.
        lost: the names of the requests whose answers were lost.

    The name of a request is its method; `LIST` for a list of objects, `DELETE` for each way to
    delete.
    """

    def __init__(self, server: int) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.before: Callable[[str], None] = lambda _: None
        self.loses: Callable[[str], bool] = lambda _: False
        self.lost: list[str] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_LIMIT)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(_LIMIT)
            request = _request(client)
            name = _name_of(request)
            self.before(name)
            with socket.create_connection(("127.0.0.1", self._server), _LIMIT) as server:
                server.sendall(request)
                answer = b""
                while more := server.recv(1 << 16):
                    answer += more
            if answer and self.loses(name):
                self.lost.append(name)
                return
            client.sendall(answer)


def _request(client: socket.socket) -> bytes:
    """Read one request, and ask the server to close the connection after its answer.

    Raises:
        OSError: the client has closed the connection.
    """
    content = b""
    while _END not in content:
        content += _more(client)
    head, _, body = content.partition(_END)
    lines = head.split(b"\r\n")
    names = [line.partition(b":")[0].strip().lower() for line in lines]
    length = next(
        (
            int(line.partition(b":")[2])
            for line, n in zip(lines, names, strict=True)
            if n == b"content-length"
        ),
        0,
    )
    while len(body) < length:
        body += _more(client)
    kept = [line for line, name in zip(lines, names, strict=True) if name != b"connection"]
    return b"\r\n".join([*kept, b"Connection: close"]) + _END + body


def _name_of(request: bytes) -> str:
    method, path = request.split(b" ", 2)[:2]
    if b"list-type=" in path:
        return "LIST"
    return "DELETE" if method == b"POST" and b"?delete" in path else method.decode()


def _more(client: socket.socket) -> bytes:
    if not (more := client.recv(1 << 16)):
        raise ConnectionResetError
    return more


@contextmanager
def losing(server: int) -> Iterator[LossyProxy]:
    """Run a proxy in front of the port of a server, for the context."""
    proxy = LossyProxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
