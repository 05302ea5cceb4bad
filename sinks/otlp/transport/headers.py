"""Validate header names and values, and parse key-value lists of OpenTelemetry's variables."""

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
"""Headers that podgpu or the connection sets."""


def header_problem(name: str, value: str) -> str:
    """Return what is wrong with a header and how to fix it, without its value; empty if valid."""
    lowered = name.lower()
    if not _NAME.fullmatch(lowered):
        return "is not a valid header name: use letters, digits, - _ and ."
    if lowered in _RESERVED or lowered.startswith("grpc-"):
        return "is set by podgpu itself: remove it"
    if lowered.endswith("-bin"):
        return "has a binary value in gRPC, which can't be configured here: remove it"
    if not value or not (value.isascii() and value.isprintable()) or value != value.strip():
        return "has an invalid value: it must be printable ASCII without blanks around it"
    return ""


def parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of `k=v,k2=v2`, percent-decoded.

    This is the format of W3C Baggage without properties; see "Specifying headers via environment
    variables" in the OpenTelemetry specification of exporters.

    Raises:
        ValueError: the format is wrong. The message contains no value, which may be a secret.
    """
    for number, entry in enumerate(text.split(","), 1):
        if not entry.strip():
            continue
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"has entry {number}, which is not of the form name=value")
        try:
            yield (
                unquote(name.strip(), errors="strict"),
                unquote(value.strip(), errors="strict"),
            )
        except UnicodeDecodeError:
            raise ValueError(f"has entry {number} with %-escapes that are not UTF-8") from None
