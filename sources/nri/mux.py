"""The outer protocol layer: several streams on one socket, in frames of id, length and payload.

A frame is not a message. The runtime writes through a buffer of 4096 bytes, so a message can arrive
in one frame or several. The frames of each id form an ordered stream of bytes.
"""

import struct
from collections.abc import Iterator
from typing import Final

PLUGIN: Final = 1
"""Id of the stream on which the plugin is the server."""

RUNTIME: Final = 2
"""Id of the stream on which the runtime is the server."""

_HEADER = struct.Struct(">II")

_MAX_FRAME_BYTES: Final = (16 << 20) + 10
"""Maximum payload of a frame in bytes. Runtimes write at most 4 MiB and a header; those with NRI
before 0.7 write a message in one frame and refuse 16 MiB."""


class ConnectionLostError(Exception):
    """The connection cannot be used any more; the text of the error contains the reason."""


class Demultiplexer:
    """Splits the data of the socket into pieces of two streams, without storing any payload."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._id = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Yield pieces of the streams with their ids, in order.

        Frames with other ids are ignored, as the runtime does.

        Raises:
            ConnectionLostError: a frame is longer than those that runtimes write.
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
                if self._left > _MAX_FRAME_BYTES:
                    raise ConnectionLostError(
                        f"the runtime announced a frame of {self._left} bytes, more than the limit "
                        f"of {_MAX_FRAME_BYTES}"
                    )


def frames(stream: int, header: bytes, body: bytes) -> list[bytes]:
    """Return the frames of a message: one for its header, and one for its body unless it is empty.

    The runtime permanently stops reading if a header is part of a larger frame. Some releases crash
    if a frame contains bytes of two messages. Separate frames work for messages of all sizes.

    Args:
        stream: id of the stream.
        header: the complete header of the message.
        body: the complete body of the message; may be empty.
    """
    parts = [_HEADER.pack(stream, len(header)), header]
    if body:
        parts += [_HEADER.pack(stream, len(body)), body]
    return parts
