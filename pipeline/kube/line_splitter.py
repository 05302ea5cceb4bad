"""Split a stream of bytes into lines."""

from collections.abc import Iterator


class LineTooLongError(Exception):
    """A line is longer than any object."""


class Lines:
    """Assembles lines from pieces; reads each byte once.

    Args:
        longest: maximum bytes of a line; no object of an API server is longer.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def partial(self) -> bool:
        """Whether the stream is in the middle of a line."""
        return self._size > 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Add a piece; yield the lines that it completes, except empty ones.

        Raises:
            LineTooLongError: the line exceeds the maximum and has no end yet.
        """
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._append(piece[start:end])
            line, self._pieces, self._size = b"".join(self._pieces), [], 0
            if not line.isspace() and line:
                yield line
            start = end + 1
        self._append(piece[start:])

    def _append(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size > self._longest:
            raise LineTooLongError
        self._pieces.append(piece)
