"""Requests and answers, from and to what aiohttp has of them."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from pipeline.component.contracts import HttpRequest, HttpResponse

COMMON_HEADERS: Final[Mapping[str, str]] = {"Server": "podgpu", "X-Content-Type-Options": "nosniff"}
"""Headers of every answer, those that are none of ours included."""


def too_large(headers: Mapping[str, str]) -> bytes:
    """Return the answer to a request that isn't read to its end."""
    text = b"the request is too long\n"
    head = {
        **headers,
        "Connection": "close",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(text)),
    }
    lines = [f"{name}: {value}" for name, value in head.items()]
    first = "HTTP/1.1 431 Request Header Fields Too Large"
    return "\r\n".join([first, *lines, "", ""]).encode() + text


def request_of(request: web.BaseRequest, source: str) -> HttpRequest:
    """Return a request as handlers see it."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()  # noqa: PLW2901
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    query = dict(request.query)
    repeated = frozenset[str]()
    if len(query) < len(request.query):
        repeated = frozenset(name for name in query if len(request.query.getall(name)) > 1)
    return HttpRequest(
        request.method, request.path, query, headers, repeated=repeated, source=source
    )


def hosts_of(request: web.BaseRequest) -> tuple[str, ...]:
    """Return the hosts that a request says it is for.

    That is its `Host`, and that of a target such as `http://name/metrics`. Where there is neither,
    it is the address that the client has connected to.
    """
    return (request.host, *request.headers.getall("Host", ()))


async def send(
    request: web.BaseRequest,
    answer: HttpResponse,
    *,
    headers: Mapping[str, str],
    last: bool,
    seconds: float,
    piece: int,
) -> web.StreamResponse:
    """Write piece by piece, each once the client has taken the one before.

    So a client that doesn't read has one piece in memory, and no further request of its is
    answered: what it sent more of them waits in the kernel.

    Args:
        request: what is answered.
        answer: what is written.
        headers: of every answer.
        last: the connection ends with it.
        seconds: for the client to take it.
        piece: bytes.
    """
    sent = {**COMMON_HEADERS, **answer.headers, **headers}
    sent["Content-Type"] = answer.content_type
    response = web.StreamResponse(status=answer.status, headers=sent)
    tail = answer.tail
    response.content_length = len(answer.body) + len(tail)
    if last:
        response.force_close()
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            if request.method != "HEAD":
                for part in (memoryview(answer.body), memoryview(tail)):
                    for start in range(0, len(part), piece):
                        await response.write(part[start : start + piece])
                        await request.writer.drain()
            await response.write_eof()
            await request.writer.drain()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
    return response
