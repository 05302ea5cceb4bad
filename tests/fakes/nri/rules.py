"""Rules for the data that a plugin sends. Each violation stalls or crashes containerd."""

import struct
from collections.abc import Iterator

HEADER = struct.Struct(">IIBB")
_BUFFER = 4096
_LONGEST_FRAME = 4194314
_LONGEST_MESSAGE = 4 << 20


class BrokenRuleError(AssertionError):
    """A plugin sent data that violates a rule."""


def require(rule: bool, text: str) -> None:
    if not rule:
        raise BrokenRuleError(text)


class Stream:
    """The data of one connection id, as the buffered reader of containerd reads it."""

    def __init__(self, channel: int) -> None:
        self._id = channel
        self._bytes = bytearray()
        self._stream = -1

    def frame(self, payload: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the stream number and the data of each message that this frame completes."""
        require(0 < len(payload) <= _LONGEST_FRAME, f"a frame of {len(payload)} bytes")
        missing = self._missing()
        if missing is None or missing < _BUFFER:
            # containerd reads with a buffer of 4096 bytes.
            require(len(payload) <= _BUFFER or missing == len(payload), "a header in a large frame")
        else:
            require(len(payload) <= missing, "a frame with the end of one message and more")
        self._bytes += payload
        complete = 0
        while (missing := self._missing()) == 0:
            length, stream, kind, flags = HEADER.unpack_from(self._bytes)
            data = bytes(self._bytes[HEADER.size : HEADER.size + length])
            del self._bytes[: HEADER.size + length]
            complete += 1
            require(complete == 1, "two messages in one frame")
            require((kind, flags) == (2 if self._id == 1 else 1, 0), f"type {kind}, flags {flags}")
            if self._id == 2:
                require(stream % 2 == 1 and stream > self._stream, f"call number {stream}")
                self._stream = stream
            yield stream, data
        require(not (complete and self._bytes), "two messages in one frame")

    def _missing(self) -> int | None:
        """Return how many bytes of the body are missing. None if the header is incomplete."""
        if len(self._bytes) < HEADER.size:
            return None
        length = HEADER.unpack_from(self._bytes)[0]
        require(length <= _LONGEST_MESSAGE, f"a message of {length} bytes")
        return max(HEADER.size + int(length) - len(self._bytes), 0)
