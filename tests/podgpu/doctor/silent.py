"""Servers that take connections and say nothing."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent() -> Iterator[int]:
    """Listen, and answer nothing: the kernel takes the connections."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made.getsockname()[1]
