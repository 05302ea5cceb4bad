"""What podgpu uses of gRPC's client; the only module that imports it.

The library costs 15 MB and a fifth of a second: import this module where it is used.
"""

import os
from contextlib import ExitStack
from functools import cache
from typing import Final

# Read when the library is loaded. It must not take part in forks, of which podgpu does none, nor
# write to stderr what it also raises.
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

_NEEDED: Final = 16
"""File descriptors that a connection takes at most, and some more."""


def check_descriptors() -> None:
    """Make sure that a channel can be made: without descriptors the library ends the process.

    Raises:
        OSError: the process may have no more of them.
    """
    with ExitStack() as stack:
        for _ in range(_NEEDED):
            stack.callback(os.close, os.eventfd(0))


@cache
def keep_library() -> None:
    """Keep the library's thread from now on. Call it before the first channel is made.

    Else it ends with each last connection and begins with the next, and the event loop waits for it
    to end.
    """
    grpc.aio.init_grpc_aio()
