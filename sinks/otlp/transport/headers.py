"""Names and values of headers, and lists of pairs as OpenTelemetry's variables have them."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

_NAME: Final = re.compile(r"[a-z0-9._-]+")
_RESERVED: Final = frozenset(
    [
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"),
        *("transfer-encoding", "user-agent"),
    ]
)
"""podgpu's own, or the connection's."""


def header_problem(name: str, value: str) -> str:
    """Return what is wrong with a header, and the mend; empty if nothing is. Tells no value."""
    lowered = name.lower()
    if not _NAME.fullmatch(lowered):
        return "is no name of a header: those are of letters, digits, - _ and ."
    if lowered in _RESERVED or lowered.startswith("grpc-"):
        return "is set by podgpu itself: leave it out"
    if lowered.endswith("-bin"):
        return "has bytes as its value in gRPC, which can't be written here: leave it out"
    if not value or not (value.isascii() and value.isprintable()) or value != value.strip():
        return "has no value that a header can have: printable ASCII, without blanks around it"
    return ""


def parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of `k=v,k2=v2`, percent-decoded.

    That is the form of W3C's baggage, without its properties; see "Specifying headers via
    environment variables" in OpenTelemetry's specification of exporters.

    Raises:
        ValueError: it isn't of that form; the text tells no value, since that may be a secret.
    """
    for number, entry in enumerate(text.split(","), 1):
        if not entry.strip():
            continue
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"entry {number} is not of the form name=value")
        try:
            yield (
                unquote(name.strip(), errors="strict"),
                unquote(value.strip(), errors="strict"),
            )
        except UnicodeDecodeError:
            raise ValueError(f"entry {number} has %-escapes that are no UTF-8") from None
