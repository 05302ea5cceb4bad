"""The parts of the gRPC client library that podgpu uses. Only this module imports it.

The library takes 15 MB and 0.2 s to import: import this module only where it is needed.
"""

import os
from contextlib import ExitStack
from functools import cache
from typing import Final

# The library reads these when it is loaded. podgpu never forks, and errors that the library raises
# must not be written to stderr too.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio
from grpc import Compression, StatusCode, ssl_channel_credentials
from grpc.aio import AioRpcError, Channel, insecure_channel, secure_channel

__all__ = [
    "AioRpcError",
    "Channel",
    "Compression",
    "StatusCode",
    "check_descriptors",
    "insecure_channel",
    "keep_library",
    "secure_channel",
    "ssl_channel_credentials",
]

_DESCRIPTORS: Final = 16
"""File descriptors that a connection may need, with some reserve."""


def check_descriptors() -> None:
    """Check that a channel can be created. Without file descriptors the library aborts the process.

    Raises:
        OSError: the process cannot open enough file descriptors.
    """
    with ExitStack() as stack:
        for _ in range(_DESCRIPTORS):
            stack.callback(os.close, os.eventfd(0))


@cache
def keep_library() -> None:
    """Keep the library's thread running from now on. Call this before the first channel is created.

    Otherwise the thread ends with the last connection and starts with the next one, and the event
    loop waits for the thread to end.
    """
    grpc.aio.init_grpc_aio()
