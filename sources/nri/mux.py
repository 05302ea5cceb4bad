"""The outermost layer: many streams of bytes on one socket, in frames of id, length and payload.

A frame is no message. The runtime writes through a buffer of 4096 bytes, so that a message arrives
in one frame or in several; each id is an ordered stream of bytes.
"""

import struct
from collections.abc import Iterator
from typing import Final

from sources.nri.errors import ProtocolError

PLUGIN: Final = 1
"""The id on which the plugin is the server."""

RUNTIME: Final = 2
"""The id on which the runtime is the server."""

_HEADER = struct.Struct(">II")

_LONGEST: Final = (16 << 20) + 10
"""Bytes of payload. Runtimes write 4 MiB and a header at most; those with NRI before 0.7 write a
message in one piece and refuse 16 MiB."""


class Demultiplexer:
    """Splits what the socket gives into pieces of the two streams. Keeps no payload."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._id = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Yield the id and a piece of its stream, in order.

        Frames of other ids are passed over, as the runtime does.

        Raises:
            ProtocolError: a frame is longer than any that a runtime writes.
        """
        rest = memoryview(data)
        while rest:
            if self._left:
                piece, rest = rest[: self._left], rest[self._left :]
                self._left -= len(piece)
                if self._id in (PLUGIN, RUNTIME):
                    yield self._id, piece
                continue
            missing = _HEADER.size - len(self._header)
            self._header += rest[:missing]
            rest = rest[missing:]
            if len(self._header) == _HEADER.size:
                self._id, self._left = _HEADER.unpack(self._header)
                self._header.clear()
                if self._left > _LONGEST:
                    raise ProtocolError(f"it announced a frame of {self._left} bytes")


def frames(stream: int, header: bytes, body: bytes) -> list[bytes]:
    """Return a message as it has to be sent: its header in a frame, its body in another.

    The runtime stops reading for good when a header comes inside a larger frame, and some releases
    crash when a frame carries bytes of two messages; this form is right at every size.

    Args:
        stream: the id.
        header: of the message, whole.
        body: of the message, whole; may be empty.
    """
    parts = [_HEADER.pack(stream, len(header)), header]
    if body:
        parts += [_HEADER.pack(stream, len(body)), body]
    return parts
