"""A snapshot's page, shared by all who scrape it."""

import zlib

_LEVEL = 1
_GZIP = 31
"""`wbits` for a gzip header and the largest window."""


class Page:
    """What doesn't change between two scrapes of one snapshot in one format.

    Compressing is most of a scrape's cost, so it is done once. The tail, which is new each time,
    goes on from a copy of the compressor: some clients read only the first of two gzip members.

    Args:
        body: the page without its tail.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._compressor: zlib._Compress | None = None
        self._compressed = b""

    def plain(self, tail: bytes) -> tuple[bytes, bytes]:
        """Return the page in two parts: one that all scrapers share, and the tail."""
        return self._body, tail

    def gzipped(self, tail: bytes) -> tuple[bytes, bytes]:
        """Return the same two parts as one gzip member."""
        if self._compressor is None:
            compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            self._compressed = compressor.compress(self._body)
            self._compressor = compressor
        rest = self._compressor.copy()
        return self._compressed, rest.compress(tail) + rest.flush()
