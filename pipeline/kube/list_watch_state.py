"""Decides what a reflector requests next. It does no I/O, so every step can be tested.

An API server offers three ways to follow a collection. A stream sends the collection object by
object and continues with its changes; servers before 1.32 refuse it. A list returns the whole
collection, which needs several times the memory on both sides. A watch sends the changes since a
resource version, as long as the server still has that version.
"""

from dataclasses import dataclass
from http import HTTPStatus

from pipeline.base.errors import ApiError

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
"""Statuses that do not mean that `version` is invalid. After them the watch is retried from it."""

_MAX_UNEXPECTED = 5
"""Number of watches that fail in a row with another status, after which the collection is read
again."""

_PAGE_SIZE = 500


@dataclass(slots=True)
class ListWatchState:
    """What a reflector knows about its copy and its server.

    Attributes:
        version: newest resource version that was received; opaque; empty at the start.
        complete: whether the copy is complete as of `version`, so that a watch can continue there.
        stream_supported: whether the server may support the stream. After a refusal, the stream is
            not requested again.
        any_version: whether the server does not have `version`. Then the newest state is requested,
            which the server reads from its database.
    """

    version: str = ""
    complete: bool = False
    stream_supported: bool = True
    any_version: bool = False
    _unexpected: int = 0

    @property
    def lists(self) -> bool:
        """Whether the next request is a list; else it is a watch or a stream."""
        return not self.complete and not self.stream_supported

    def parameters(self, seconds: int) -> dict[str, str]:
        """Return the query parameters of the next request.

        Args:
            seconds: time after which the server ends a stream or a watch.
        """
        # 0 allows any state in the server's cache. A later version excludes older states.
        version = {} if self.any_version else {"resourceVersion": self.version or "0"}
        if self.lists:
            # A response from the cache has no pages; one from the database has.
            return version or {"limit": str(_PAGE_SIZE)}
        watch = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if self.complete:
            return watch | {"resourceVersion": self.version}
        whole = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return watch | whole | version

    def note_version(self, version: str) -> None:
        """Record the resource version of a received event."""
        if version:
            self.version = version
        self._unexpected = 0

    def completed(self, version: str) -> None:
        """Record that the copy is complete as of this resource version."""
        self.note_version(version)
        self.complete, self.any_version = True, False

    def failed(self, error: ApiError) -> bool:
        """Record a failed request. If a retry cannot succeed, choose another kind of request.

        Returns:
            Whether the next request may be sent immediately. Otherwise the caller waits first.
        """
        expired = _expired(error)
        if self.complete:
            if error.status not in _SERVER_STATUSES:
                self._unexpected += 1
            # A bad request fails every time; other errors may be temporary.
            bad = error.status in _NOT_OFFERED - {HTTPStatus.INTERNAL_SERVER_ERROR}
            if expired or bad or self._unexpected >= _MAX_UNEXPECTED:
                self.complete, self._unexpected = False, 0
            return False
        if expired and not self.any_version:
            self.any_version = True
            return True
        if self.stream_supported and error.status in _NOT_OFFERED:
            self.stream_supported = False
            return True
        return False


def _expired(error: ApiError) -> bool:
    """Return whether the server no longer has the changes since `version`, or never had it."""
    return (
        error.status == HTTPStatus.GONE
        or error.reason in {"Expired", "Gone"}
        or "too large resource version" in str(error).lower()
    )
