"""The errors that cross a component's border.

    ComponentError
      TransientError(retry_after=None)   try again later; the component is degraded, data goes on
        ApiError(status, reason)         the same, from an API server
        CodeRefusedError                 the same, until the file is another one
      PermanentError                     what was asked for can't be had: a bad option, a taken port

Only the module that imports a library catches that library's exceptions and raises one of these
`from` it. Anything else that escapes a component is a bug: the process ends with status 1 and its
supervisor outside starts it anew.
"""

from typing import Final

LONGEST_WAIT: Final = 300.0
"""Seconds that an API server, or whatever answers in its place, may ask us to wait."""


class ComponentError(Exception):
    """Base of what a source or sink may raise on purpose; the text names the place and the mend."""


class TransientError(ComponentError):
    """It can't be done now. The supervisor retries with a growing, jittered delay.

    Attributes:
        retry_after: seconds to wait at least, where the other side or the kind of fault says so.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CodeRefusedError(TransientError):
    """Code that a configuration leads to was not run: the command line doesn't allow it."""


class ApiError(TransientError):
    """An API server refused, or couldn't be reached.

    Attributes:
        status: the HTTP status, or the code of a Status object that came in a stream; 0 when
            there was no answer.
        retry_after: as the server says, but for `LONGEST_WAIT` at most.
        reason: the Status object's reason, such as `Expired` or `Forbidden`; without one, what of
            the text doesn't vary while the same is wrong, or empty.
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
        """What is equal for two errors if the second is no news after the first."""
        return self.status, self.reason


class PermanentError(ComponentError):
    """It can't be done with this configuration. At first start podgpu ends with status 2."""
