"""What a reflector asks for next: pure, so that every turn can be tested without a server.

An API server offers three ways to the same end. A stream gives the collection object by object and
goes on with its changes; servers before 1.32 refuse it. A list gives it whole, at a multiple of the
memory on both sides. A watch gives the changes since a version, for as long as the server remembers
that version.
"""

from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus

from pipeline.base.errors import ApiError


class Step(Enum):
    """A way to ask."""

    STREAM = "stream"
    LIST = "list"
    WATCH = "watch"


_NOT_OFFERED = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_ACCEPTABLE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.NOT_IMPLEMENTED,
}
_SERVER_STATUSES = {
    0,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""What goes by without what we know being wrong: the version that we have is asked for again."""

_MAX_UNEXPECTED = 5
"""Watches in a row that bring an error of another kind, before the collection is read anew."""

_PAGE = 500


@dataclass(slots=True)
class ListWatch:
    """Where a reflector stands.

    Attributes:
        version: of the newest thing that was heard; opaque, empty before anything was.
        complete: the copy is whole as of `version`, so that a watch can go on from there.
        stream_supported: the server may offer the stream; once refused it isn't asked for again.
        any_version: the server doesn't know our version: its newest state is asked for, which costs
            it a read from its database.
    """

    version: str = ""
    complete: bool = False
    stream_supported: bool = True
    any_version: bool = False
    _unexpected: int = 0

    @property
    def step(self) -> Step:
        """What to do next."""
        if self.complete:
            return Step.WATCH
        return Step.STREAM if self.stream_supported else Step.LIST

    def parameters(self, seconds: int) -> dict[str, str]:
        """Return the query parameters of the next step.

        Args:
            seconds: for which the server is to keep a stream open.
        """
        step = self.step
        # 0 is what the server has at hand, however old; later never what is older than ours.
        version = {} if self.any_version else {"resourceVersion": self.version or "0"}
        if step is Step.LIST:
            # A server that answers from its cache answers whole; its database is read in pages.
            return version or {"limit": str(_PAGE)}
        watch = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if step is Step.STREAM:
            whole = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            return watch | whole | version
        return watch | {"resourceVersion": self.version}

    def note_version(self, version: str) -> None:
        """Note the version of something that came in a watch."""
        if version:
            self.version = version
        self._unexpected = 0

    def completed(self, version: str) -> None:
        """Note that the copy is whole as of this version."""
        self.note_version(version)
        self.complete, self.any_version = True, False

    def stream_unsupported(self) -> None:
        """Note that the server offers no stream, though it doesn't say so."""
        self.stream_supported = False

    def failed(self, error: ApiError) -> bool:
        """Choose another way where this one has no end.

        Returns:
            Whether the next step may be taken at once; else only after a delay.
        """
        expired = _expired(error)
        if self.complete:
            if error.status not in _SERVER_STATUSES:
                self._unexpected += 1
            # Bad requests are never going to be good ones, other errors may be.
            bad = error.status in _NOT_OFFERED - {HTTPStatus.INTERNAL_SERVER_ERROR}
            if expired or bad or self._unexpected >= _MAX_UNEXPECTED:
                self.complete, self._unexpected = False, 0
            return False
        if expired and not self.any_version:
            self.any_version = True
            return True
        if self.stream_supported and error.status in _NOT_OFFERED:
            self.stream_unsupported()
            return True
        return False


def _expired(error: ApiError) -> bool:
    """Whether the server can't tell what came after our version, or never knew it."""
    return (
        error.status == HTTPStatus.GONE
        or error.reason in {"Expired", "Gone"}
        or "too large resource version" in str(error).lower()
    )
