"""Bodies of requests: read within a bound for each, and within one for all of them together."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from pipeline.contracts import HttpResponse, Refusal
from pipeline.http.limits import Limits
from pipeline.pages import plain

_CREDIT: Final = 1 << 16
"""Bytes that everybody is taken to have sent already: else who has just begun would be slowest."""


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


class _Room:
    """Bytes that some share."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class _Guest:
    """A body that is coming, or an answer that is being sent.

    Attributes:
        size: bytes that it holds.
        displaced: it has given way, and is about to end.

    Args:
        since: when it began, in the event loop's time.
        room: what it takes its bytes from.
        end: gives it up.
    """

    def __init__(self, since: float, room: _Room, end: Callable[[], None]) -> None:
        self.since = since
        self.room = room
        self.end = end
        self.size = 0
        self.displaced = False

    def speed(self, now: float) -> float:
        """Return how fast it is, in bytes per second; an answer, if it ended now."""
        return (self.size + _CREDIT) / (now - self.since + 0.001)


class _Body(bytes):
    """A body that is counted for as long as anybody has it, be it a thread that nobody waits for.

    Attributes:
        gone: called once nobody has it, in whatever thread that is.
    """

    gone: Callable[[], None]

    def __del__(self) -> None:
        self.gone()


class Bodies:
    """Counts what a listener holds of bodies, and of the answers to them.

    Counted is what has come, not what was announced: many who announce much and send nothing keep
    nobody out. Who is slow gives way to who is faster.

    Args:
        limits: of the listener.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._small = _Room(limits.small_bytes)
        self._large = _Room(limits.body_bytes)
        self._coming: set[_Guest] = set()
        self._sending: set[_Guest] = set()
        # Threads put in: a number they took off themselves could lose one of two changes.
        self._gone: deque[tuple[_Room, int]] = deque()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        self._settle()
        return self._small.held + self._large.held

    async def read(self, request: web.BaseRequest, longest: int) -> bytes:
        """Read a body. It counts until the last who has it has let go of it.

        Args:
            request: whose.
            longest: bytes that it may have; 0 reads none.

        Raises:
            BodyRefusedError: it is longer, or encoded, or there is no room for it.
        """
        if not longest or not request.body_exists:
            return b""
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            told = "send the body as it is, without an encoding"
            raise BodyRefusedError("encoded", plain(415, told))
        if (request.content_length or 0) > longest:
            raise _too_long(longest)
        now = asyncio.get_running_loop().time
        if len(self._coming) >= self._limits.bodies:
            self._displace(min(self._coming, key=lambda one: one.speed(now())))
        limit = asyncio.timeout(None)
        guest = _Guest(now(), self._small, lambda: limit.reschedule(now()))
        data = bytearray()
        try:
            async with limit:
                self._coming.add(guest)
                while piece := await request.content.readany():
                    if guest.displaced:
                        break
                    if guest.size + len(piece) > longest:
                        raise _too_long(longest)
                    self._grow(guest, len(piece), now())
                    data += piece
                self._coming.discard(guest)
            # What had come before it could be told.
            if guest.displaced:
                raise _busy()
            body = _Body(data)
            left, kept = self._gone.append, (guest.room, guest.size)
            body.gone = lambda: left(kept)
            guest.size = 0
        except TimeoutError:
            raise _busy() from None
        else:
            return body
        finally:
            self._coming.discard(guest)
            guest.room.held -= guest.size

    @contextmanager
    def sending(self, size: int, abort: Callable[[], None]) -> Iterator[None]:
        """Count an answer while it is being sent.

        Args:
            size: its bytes.
            abort: ends its connection, which is done if somebody faster needs the room.
        """
        room = self._small if size <= self._limits.small_body else self._large
        guest = _Guest(asyncio.get_running_loop().time(), room, abort)
        guest.size = size
        # It is there already: there is nothing to refuse.
        room.held += size
        self._sending.add(guest)
        try:
            yield
        finally:
            self._sending.discard(guest)
            room.held -= guest.size

    def _grow(self, guest: _Guest, more: int, now: float) -> None:
        """Take room for what has come, at the cost of whoever is slower.

        Raises:
            BodyRefusedError: nobody is.
        """
        if guest.room is self._small and guest.size + more > self._limits.small_body:
            self._small.held -= guest.size
            self._large.held += guest.size
            guest.room = self._large
        room = guest.room
        guest.size += more
        room.held += more
        if room.held > room.most:
            self._settle()
        while room.held > room.most:
            others = [one for one in (*self._coming, *self._sending) if one.room is room]
            slowest = min(others, key=lambda one: one.speed(now))
            if slowest is guest:
                raise _busy()
            self._displace(slowest)

    def _displace(self, guest: _Guest) -> None:
        self._coming.discard(guest)
        self._sending.discard(guest)
        guest.room.held -= guest.size
        guest.size = 0
        guest.displaced = True
        guest.end()

    def _settle(self) -> None:
        while self._gone:
            room, size = self._gone.popleft()
            room.held -= size


def _too_long(longest: int) -> BodyRefusedError:
    return BodyRefusedError("too_long", plain(413, f"the body is longer than {longest} bytes"))


def _busy() -> BodyRefusedError:
    told = "too many large requests are being answered: ask again"
    return BodyRefusedError("busy", plain(503, told))
