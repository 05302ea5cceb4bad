"""Cutting a stream of bytes into lines."""

from collections.abc import Iterator


class LineTooLongError(Exception):
    """A line is longer than any object can be."""


class Lines:
    """Puts lines together from pieces, each byte looked at once.

    Args:
        longest: bytes that a line may have; more is no object of an API server.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._held = 0

    @property
    def partial(self) -> bool:
        """Whether the stream stands in the middle of a line."""
        return self._held > 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take in a piece; give the lines that it completes, without empty ones.

        Raises:
            LineTooLongError: there is still no end to the line.
        """
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._hold(piece[start:end])
            line, self._pieces, self._held = b"".join(self._pieces), [], 0
            if not line.isspace() and line:
                yield line
            start = end + 1
        self._hold(piece[start:])

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._held += len(piece)
        if self._held > self._longest:
            raise LineTooLongError
        self._pieces.append(piece)
