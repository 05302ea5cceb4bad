"""The middle protocol layer: ttrpc calls, as request and response with the same number."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

from pipeline.net.protobuf import DecodeError, Schema
from sources.nri.errors import ProtocolError

LONGEST: Final = 4 << 20
"""Maximum size of a message in bytes, without header; the limit of both sides."""

REQUEST: Final = 1
RESPONSE: Final = 2

_HEADER = struct.Struct(">IIBB")
_NS: Final = 1_000_000_000


class Code(IntEnum):
    """The status codes that podgpu distinguishes; they have gRPC's numbers."""

    OK = 0
    UNIMPLEMENTED = 12


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


class Encoded(NamedTuple):
    """An encoded message to be sent."""

    header: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        service: full name of the service.
        method: name of the method, without the service.
        payload: the encoded argument.
    """

    service: str
    method: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """The status in a response.

    Attributes:
        code: 0 for success.
        message: the error message of a failure.
    """

    code: int
    message: str


class Assembler:
    """Assembles messages from the pieces of a stream. It keeps at most one incomplete message."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._body = bytearray()
        self._wanted: tuple[int, int, int] | None = None

    def feed(self, piece: memoryview) -> Iterator[Frame]:
        """Yield the messages that are complete now.

        Raises:
            ProtocolError: a message is too long.
        """
        rest = piece
        while True:
            if self._wanted is None:
                missing = _HEADER.size - len(self._header)
                self._header += rest[:missing]
                rest = rest[missing:]
                if len(self._header) < _HEADER.size:
                    return
                length, stream, kind, _ = _HEADER.unpack(self._header)
                self._header.clear()
                if length > LONGEST:
                    raise ProtocolError(f"the runtime announced a message of {length} bytes")
                self._wanted = length, stream, kind
            length, stream, kind = self._wanted
            missing = length - len(self._body)
            self._body += rest[:missing]
            rest = rest[missing:]
            if len(self._body) < length:
                return
            data = bytes(self._body)
            self._body = bytearray()
            self._wanted = None
            yield Frame(stream, kind, data)


def read_request(data: bytes) -> Request:
    """Decode a request.

    Raises:
        ProtocolError: the message is invalid.
    """
    message = _decode("Request", data)
    return Request(message.service, message.method, message.payload)


def read_response(data: bytes) -> Response:
    """Decode a response.

    Raises:
        ProtocolError: the message is invalid.
    """
    message = _decode("Response", data)
    return Response(message.status.code, message.status.message)


def request(stream: int, call: Request, seconds: float) -> Encoded:
    """Return an encoded request.

    Args:
        stream: number of the call: odd, and higher than all earlier ones of this connection.
        call: the request.
        seconds: timeout for the response.
    """
    data = _message("Request")(
        service=call.service,
        method=call.method,
        payload=call.payload,
        timeout_nano=round(seconds * _NS),
    )
    return _encoded(stream, REQUEST, data.SerializeToString())


def success(stream: int, payload: bytes = b"") -> Encoded:
    """Return an encoded response to a successful call; an empty payload is an empty message."""
    data = _message("Response")(payload=payload).SerializeToString() if payload else b""
    return _encoded(stream, RESPONSE, data)


def failure(stream: int, code: Code, message: str) -> Encoded:
    """Return an encoded response to a call that failed."""
    response = _message("Response")(status={"code": int(code), "message": message})
    return _encoded(stream, RESPONSE, response.SerializeToString())


def _encoded(stream: int, kind: int, data: bytes) -> Encoded:
    return Encoded(_HEADER.pack(len(data), stream, kind, 0), data)


def _decode(name: str, data: bytes) -> Any:
    try:
        return _message(name).FromString(data)
    except DecodeError:
        raise ProtocolError(f"the runtime sent an invalid {name.lower()}") from None


@cache
def _message(name: str) -> type[Any]:
    return _schema().message(f"ttrpc.{name}")


@cache
def _schema() -> Schema:
    return Schema.load_from_package("sources.nri", "ttrpc.binpb")
