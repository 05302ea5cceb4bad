"""Bodies of requests: read within a bound for each, and within one for all of them together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from pipeline.contracts import HttpResponse
from pipeline.pages import plain


class BodyRefusedError(Exception):
    """A body isn't taken.

    Attributes:
        answer: says why.
    """

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__(answer.body)
        self.answer = answer


class Bodies:
    """Counts what a listener holds of bodies.

    Counted is what has come, not what was announced: many who announce much and send nothing keep
    nobody out.

    Args:
        most: bytes of all of them together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._held

    @asynccontextmanager
    async def read(self, request: web.BaseRequest, longest: int) -> AsyncIterator[bytes]:
        """Read a body, and count it for as long as it is needed.

        Args:
            request: whose.
            longest: bytes that it may have; 0 reads none.

        Raises:
            BodyRefusedError: it is longer, or encoded, or there is no room for it.
        """
        if not longest:
            yield b""
            return
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise BodyRefusedError(plain(415, "send the body as it is, without an encoding"))
        if (request.content_length or 0) > longest:
            raise _too_long(longest)
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := await request.content.readany():
                size += len(piece)
                self._held += len(piece)
                if size > longest:
                    raise _too_long(longest)
                if self._held > self._most:
                    told = "too many large requests are being answered: ask again"
                    raise BodyRefusedError(plain(503, told))
                pieces.append(piece)
            body = b"".join(pieces)
            pieces.clear()
            yield body
        finally:
            self._held -= size


def _too_long(longest: int) -> BodyRefusedError:
    return BodyRefusedError(plain(413, f"the body is longer than {longest} bytes"))
