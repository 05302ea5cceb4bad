"""Converts requests from aiohttp, and sends responses through it."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from pipeline.component.contracts import HttpRequest, HttpResponse

COMMON_HEADERS: Final[Mapping[str, str]] = {"Server": "podgpu", "X-Content-Type-Options": "nosniff"}
"""Headers of every response, including those that aiohttp makes."""


def too_large(headers: Mapping[str, str]) -> bytes:
    """Return the response to a request whose head is too long; the rest of it is not read."""
    text = b"the request header is too long\n"
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
    """Return a request as handlers get it."""
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


async def send(
    request: web.BaseRequest,
    answer: HttpResponse,
    *,
    headers: Mapping[str, str],
    last: bool,
    seconds: float,
    piece: int,
) -> web.StreamResponse:
    """Write a response piece by piece, each when the client has read the previous one.

    So a client that does not read holds one piece in memory, and its further requests wait in the
    kernel.

    Args:
        request: the request.
        answer: the response.
        headers: headers of every response.
        last: whether the connection ends with this response.
        seconds: time for the client to read it.
        piece: bytes of a piece.
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
