"""Requests and answers, from and to what aiohttp has of them."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from pipeline.contracts import HttpRequest, HttpResponse

_CHUNK = 1 << 16
COMMON: Final[Mapping[str, str]] = {"Server": "podgpu", "X-Content-Type-Options": "nosniff"}
"""Headers of every answer, those that are none of ours included."""


def request_of(request: web.BaseRequest) -> HttpRequest:
    """Return a request as handlers see it."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()  # noqa: PLW2901
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    query = dict(request.query)
    repeated = frozenset[str]()
    if len(query) < len(request.query):
        repeated = frozenset(name for name in query if len(request.query.getall(name)) > 1)
    return HttpRequest(request.method, request.path, query, headers, repeated=repeated)


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
) -> web.StreamResponse:
    """Write in pieces: what waits for a slow client is one piece, not the whole page.

    Args:
        request: what is answered.
        answer: what is written.
        headers: of every answer.
        last: the connection ends with it.
        seconds: for the client to take it.
    """
    sent = {**COMMON, **answer.headers, **headers}
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
                    for start in range(0, len(part), _CHUNK):
                        await response.write(part[start : start + _CHUNK])
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
    return response
