"""Reads request bodies within a size limit for each and a limit for all listeners."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from pipeline.component.contracts import HttpResponse, Refusal
from pipeline.http.builtin_pages import plain
from pipeline.http.client_shares import ClientConnection, ClientShares


class BodyRefusedError(Exception):
    """A request body is not accepted.

    Attributes:
        kind: the reason.
        answer: the response with the reason.
    """

    def __init__(self, kind: Refusal, answer: HttpResponse) -> None:
        super().__init__(answer.body)
        self.kind = kind
        self.answer = answer


class _Body(bytes):
    """A body that counts until it is collected, for example while a thread still uses it.

    Attributes:
        on_collected: called when it is collected, in any thread.
    """

    on_collected: Callable[[], None]

    def __del__(self) -> None:
        self.on_collected()


async def read_body(
    request: web.BaseRequest, longest: int, accounting: ClientShares, client: ClientConnection
) -> bytes:
    """Read the body of a request. Its bytes count until the returned object is collected.

    Args:
        request: the request.
        longest: maximum of bytes.
        accounting: counts the bytes.
        client: the connection.

    Raises:
        BodyRefusedError: the body is too long or encoded, or there is no room for it.
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
    text = "too many large requests are being answered: try again"
    return BodyRefusedError("busy", plain(503, text))
