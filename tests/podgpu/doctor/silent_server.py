"""A server that accepts connections and never responds."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_server() -> Iterator[int]:
    """Listen at a port, and never respond: the kernel accepts the connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
