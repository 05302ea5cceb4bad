"""Bodies of requests: read within a bound for each, and within that of the listeners."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from pipeline.component.contracts import HttpResponse, Refusal
from pipeline.http.builtin_pages import plain
from pipeline.http.client_shares import ClientAccounting, ClientConnection


class BodyRefusedError(Exception):
    """A body isn't taken.

    Attributes:
        kind: why.
        answer: says why.
    """

    def __init__(self, kind: Refusal, answer: HttpResponse) -> None:
        super().__init__(answer.body)
        self.kind = kind
        self.answer = answer


class _Body(bytes):
    """A body that is counted for as long as anybody has it, be it a thread that nobody waits for.

    Attributes:
        on_collected: called once nobody has it, in whatever thread that is.
    """

    on_collected: Callable[[], None]

    def __del__(self) -> None:
        self.on_collected()


async def read_body(
    request: web.BaseRequest, longest: int, accounting: ClientAccounting, client: ClientConnection
) -> bytes:
    """Read a body. It counts until the last who has it has let go of it.

    Args:
        request: whose.
        longest: bytes that it may have.
        accounting: what it counts in.
        client: its connection.

    Raises:
        BodyRefusedError: it is longer, or encoded, or there is no room for it.
    """
    if not request.body_exists:
        return b""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        told = "send the body as it is, without an encoding"
        raise BodyRefusedError("encoded", plain(415, told))
    if (request.content_length or 0) > longest:
        raise _too_long(longest)
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    client.cancel = lambda: limit.reschedule(loop.time())
    data = bytearray()
    try:
        async with limit:
            while piece := await request.content.readany():
                if len(data) + len(piece) > longest:
                    raise _too_long(longest)
                data += piece
                if not accounting.grow(client, len(piece)):
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
    told = "too many large requests are being answered: ask again"
    return BodyRefusedError("busy", plain(503, told))
