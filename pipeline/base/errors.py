"""The errors that components may raise.

    ComponentError
      TransientError(retry_after=None)   a retry may help; only this component is degraded
        ApiError(status, reason)         the same, for a request to an API server
        CodeRefusedError                 the same, until the file is replaced
      ResponseError                    one response of a server that works cannot be used
      PermanentError                     invalid configuration: a bad option, a port in use

Only the module that imports a library catches that library's exceptions, and raises one of these
`from` them. Any other exception that escapes a component is a bug: the process ends with status 1
and is restarted by its supervisor, such as the kubelet.
"""

from typing import Final

LONGEST_WAIT: Final = 300.0
"""Longest wait in seconds that an API server, or a proxy in its place, can request."""


class ComponentError(Exception):
    """Base of errors that sources and sinks raise. The text says what failed and how to fix it."""


class TransientError(ComponentError):
    """Not possible now. The supervisor retries with exponential backoff.

    Attributes:
        retry_after: shortest wait in seconds, if the server or the kind of error requires one.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CodeRefusedError(TransientError):
    """Code that the configuration refers to was not run, because the command line forbids it."""


class ResponseError(TransientError):
    """A server responded, but not with what was asked for. Its other responses may be good."""


class ApiError(TransientError):
    """An API server refused a request or could not be reached.

    Attributes:
        status: the HTTP status, or the code of a Status object in a stream; 0 without a response.
        retry_after: seconds to wait, as the server requests it, at most `LONGEST_WAIT`.
        reason: the Status object's reason, such as `Expired` or `Forbidden`. Without one, the part
            of the text that stays the same for the same error, or empty.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None
    ) -> None:
        wait = None if retry_after is None else min(retry_after, LONGEST_WAIT)
        super().__init__(message, retry_after=wait)
        self.status = status
        self.reason = reason

    @property
    def dedup_key(self) -> tuple[int, str]:
        """Equal for two errors if the second one adds no information."""
        return self.status, self.reason


class PermanentError(ComponentError):
    """Not possible with this configuration. At the first start podgpu ends with status 2."""
