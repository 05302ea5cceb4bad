"""The middle protocol layer: ttrpc calls. Request and response of a call have the same number."""

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from pipeline.net.protobuf_schema import DecodeError, Schema
from sources.nri.mux import ConnectionLostError

LONGEST: Final = 4 << 20
"""Maximum size of a message in bytes, without header. Runtime and plugin have the same limit."""

REQUEST: Final = 1
RESPONSE: Final = 2

OK: Final = 0
UNIMPLEMENTED: Final = 12
"""Status codes of a response, with gRPC's numbers."""

_HEADER = struct.Struct(">IIBB")
_NS: Final = 1_000_000_000


class Frame(NamedTuple):
    """A message on the wire.

    Attributes:
        stream: number of the call.
        kind: `REQUEST`, `RESPONSE`, or an unknown kind.
        data: the encoded message.
    """

    stream: int
    kind: int
    data: bytes


Encoded: TypeAlias = tuple[bytes, bytes]
"""Header and body of an encoded message."""


@cache
def _schema(package: str) -> Schema:
    return Schema.load_from_package("sources.nri", f"{package}.binpb")


def encode(name: str, *, package: str = "ttrpc", **fields: Any) -> bytes:
    """Encode the message `name`.

    `package` is its protobuf package, whose schema is loaded once.
    """
    message = _schema(package).message(f"{package}.{name}")
    return bytes(message(**fields).SerializeToString())


def decode(name: str, data: bytes, *, package: str = "ttrpc") -> Any:
    """Decode the message `name`; `package` is its protobuf package.

    Raises:
        ConnectionLostError: the data is invalid.
    """
    try:
        return _schema(package).message(f"{package}.{name}").FromString(data)
    except DecodeError:
        raise ConnectionLostError(f"the runtime sent an invalid message of type {name}") from None


class Assembler:
    """Assembles messages from the pieces of a stream. It keeps at most one incomplete message."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, piece: memoryview) -> Iterator[Frame]:
        """Yield the messages that are complete with this piece.

        Raises:
            ConnectionLostError: a message is longer than `LONGEST`.
        """
        self._data += piece
        while len(self._data) >= _HEADER.size:
            length, stream, kind, _ = _HEADER.unpack_from(self._data)
            if length > LONGEST:
                raise ConnectionLostError(
                    f"the runtime announced a message of {length} bytes, more than the limit of "
                    f"{LONGEST}"
                )
            end = _HEADER.size + length
            if len(self._data) < end:
                return
            data = bytes(self._data[_HEADER.size : end])
            del self._data[:end]
            yield Frame(stream, kind, data)


def request(stream: int, service: str, method: str, payload: bytes, seconds: float) -> Encoded:
    """Return an encoded request.

    Args:
        stream: number of the call: odd, and higher than all earlier numbers of this connection.
        service: full name of the service.
        method: name of the method, without the service.
        payload: the encoded argument.
        seconds: timeout for the response, in seconds.
    """
    fields: dict[str, Any] = {"service": service, "method": method, "payload": payload}
    data = encode("Request", timeout_nano=round(seconds * _NS), **fields)
    return _encoded(stream, REQUEST, data)


def success(stream: int, payload: bytes = b"") -> Encoded:
    """Return an encoded response to a successful call; without a payload, it has no body."""
    data = encode("Response", payload=payload) if payload else b""
    return _encoded(stream, RESPONSE, data)


def failure(stream: int, code: int, message: str) -> Encoded:
    """Return an encoded response to a call that failed."""
    status = {"code": code, "message": message}
    return _encoded(stream, RESPONSE, encode("Response", status=status))


def _encoded(stream: int, kind: int, data: bytes) -> Encoded:
    return _HEADER.pack(len(data), stream, kind, 0), data
