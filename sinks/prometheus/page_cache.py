"""A rendered page of a snapshot, shared by all scrapes."""

import zlib

_LEVEL = 1
_GZIP_WBITS = 31
"""`wbits` for the gzip format with the largest window."""


class Page:
    """The part of a page that is the same for all scrapes of one snapshot in one format.

    Compression is most of the cost of a scrape, so it is done once. A copy of the compressor
    continues with the tail, which is new for each scrape. It does not start a second gzip member,
    because some clients read only the first one.

    Args:
        body: the page without its tail.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._compressor: zlib._Compress | None = None
        self._compressed = b""

    def plain(self, tail: bytes) -> tuple[bytes, bytes]:
        """Return the page in two parts: the shared body and the tail."""
        return self._body, tail

    def gzipped(self, tail: bytes) -> tuple[bytes, bytes]:
        """Return the two parts compressed; together they are one gzip member."""
        if self._compressor is None:
            compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
            self._compressed = compressor.compress(self._body)
            self._compressor = compressor
        compressor = self._compressor.copy()
        return self._compressed, compressor.compress(tail) + compressor.flush()
