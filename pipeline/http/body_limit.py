"""Reads request bodies, within a limit for each body and a limit for all listeners together."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from pipeline.component.contracts import HttpResponse, Refusal
from pipeline.http.builtin_pages import plain
from pipeline.http.client_shares import ClientConnection, ClientShares


class BodyRefusedError(Exception):
    """A request body is not accepted.

    Attributes:
        kind: the reason, as a constant.
        answer: the response to the client.
    """

    def __init__(self, kind: Refusal, answer: HttpResponse) -> None:
        super().__init__(answer.body)
        self.kind = kind
        self.answer = answer


class _Body(bytes):
    """A body whose bytes count against the limit until the object is garbage-collected.

    So they count while a thread still uses the body.

    Attributes:
        on_collected: called when the object is garbage-collected, in any thread.
    """

    on_collected: Callable[[], None]

    def __del__(self) -> None:
        self.on_collected()


async def read_body(
    request: web.BaseRequest, longest: int, accounting: ClientShares, client: ClientConnection
) -> bytes:
    """Read the body of a request.

    Its bytes count against the limit of all listeners until the returned object is
    garbage-collected.

    Args:
        request: the request.
        longest: maximum length of the body, in bytes.
        accounting: counts the bytes of all connections.
        client: the connection of the request.

    Raises:
        BodyRefusedError: the body is too long or has a content encoding, or podgpu holds too many
            bytes for clients.
    """
    if not request.body_exists:
        return b""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        text = "send the body without Content-Encoding"
        raise BodyRefusedError("encoded", plain(415, text))
    if (request.content_length or 0) > longest:
        raise _too_long(longest)
    loop = asyncio.get_running_loop()
    deadline = asyncio.timeout(None)
    client.cancel = lambda: deadline.reschedule(loop.time())
    data = bytearray()
    try:
        async with deadline:
            while part := await request.content.readany():
                if len(data) + len(part) > longest:
                    raise _too_long(longest)
                data += part
                if not accounting.grow(client, len(part)):
                    raise _busy()
        body = _Body(data)
        body.on_collected = accounting.count_until_released(client, len(data))
        data.clear()
    except TimeoutError:
        raise _busy() from None
    else:
        return body
    finally:
        client.cancel = None
        accounting.shrink(client, len(data))


def _too_long(longest: int) -> BodyRefusedError:
    return BodyRefusedError("too_long", plain(413, f"the body is longer than {longest} bytes"))


def _busy() -> BodyRefusedError:
    text = "too many large requests are in memory: try again later"
    return BodyRefusedError("busy", plain(503, text))
