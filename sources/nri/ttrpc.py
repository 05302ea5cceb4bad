"""The middle layer: calls, each of them a request and a response with a number in common."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

from pipeline.net.protobuf import DecodeError, Schema
from sources.nri.errors import ProtocolError

LONGEST: Final = 4 << 20
"""Bytes of a message without its header. Neither side takes more."""

REQUEST: Final = 1
RESPONSE: Final = 2

_HEADER = struct.Struct(">IIBB")
_NS: Final = 1_000_000_000


class Code(IntEnum):
    """How a call ended, as far as podgpu tells it apart; numbers are gRPC's."""

    OK = 0
    UNIMPLEMENTED = 12


class Frame(NamedTuple):
    """A message as it travels.

    Attributes:
        stream: number of the call.
        kind: `REQUEST`, `RESPONSE`, or something that podgpu doesn't know.
        data: encoded.
    """

    stream: int
    kind: int
    data: bytes


class Encoded(NamedTuple):
    """A message to be sent."""

    header: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A call.

    Attributes:
        service: full name.
        method: bare name.
        payload: the encoded argument.
    """

    service: str
    method: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """How a call ended.

    Attributes:
        code: 0 for success.
        message: for people, where it failed.
    """

    code: int
    message: str


class Assembler:
    """Puts the pieces of one stream together to messages. Keeps one unfinished message at most."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._body = bytearray()
        self._wanted: tuple[int, int, int] | None = None

    def feed(self, piece: memoryview) -> Iterator[Frame]:
        """Yield the messages that are complete now.

        Raises:
            ProtocolError: a message is longer than it may be.
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
                    raise ProtocolError(f"it announced a message of {length} bytes")
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
    """Read a request.

    Raises:
        ProtocolError: it is none.
    """
    told = _decode("Request", data)
    return Request(told.service, told.method, told.payload)


def read_response(data: bytes) -> Response:
    """Read a response.

    Raises:
        ProtocolError: it is none.
    """
    told = _decode("Response", data)
    return Response(told.status.code, told.status.message)


def request(stream: int, call: Request, seconds: float) -> Encoded:
    """Return a request to be sent.

    Args:
        stream: number of the call: odd, and higher than all before on this connection.
        call: what is asked.
        seconds: how long an answer is waited for.
    """
    data = _message("Request")(
        service=call.service,
        method=call.method,
        payload=call.payload,
        timeout_nano=round(seconds * _NS),
    )
    return _encoded(stream, REQUEST, data.SerializeToString())


def success(stream: int, payload: bytes = b"") -> Encoded:
    """Return the response to a call that was done; an empty payload is an empty message."""
    data = _message("Response")(payload=payload).SerializeToString() if payload else b""
    return _encoded(stream, RESPONSE, data)


def failure(stream: int, code: Code, message: str) -> Encoded:
    """Return the response to a call that can't be done."""
    told = _message("Response")(status={"code": int(code), "message": message})
    return _encoded(stream, RESPONSE, told.SerializeToString())


def _encoded(stream: int, kind: int, data: bytes) -> Encoded:
    return Encoded(_HEADER.pack(len(data), stream, kind, 0), data)


def _decode(name: str, data: bytes) -> Any:
    try:
        return _message(name).FromString(data)
    except DecodeError:
        raise ProtocolError(f"its {name.lower()} can't be read") from None


@cache
def _message(name: str) -> type[Any]:
    return _schema().message(f"ttrpc.{name}")


@cache
def _schema() -> Schema:
    return Schema.load_from_package("sources.nri", "ttrpc.binpb")
