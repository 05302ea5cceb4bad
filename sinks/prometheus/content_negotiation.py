"""Select format and compression from the headers Accept and Accept-Encoding.

These headers are preferences. Invalid or unsupported ones are ignored and never cause an error.
"""

import re
from operator import itemgetter
from typing import NamedTuple

from pipeline.exposition.text_format import Format

_TYPES: dict[Format, tuple[str, str, frozenset[str]]] = {
    # With equal preference the first one is used. An omitted version means any.
    Format.TEXT: ("text", "plain", frozenset({"", "0.0.4"})),
    Format.OPENMETRICS: ("application", "openmetrics-text", frozenset({"", "1.0.0"})),
}
_QUALITY = re.compile(r"[0-9]?(?:\.[0-9]{0,9})?")
_EXACT = 3
_MAX_ENTRIES = 64
"""Maximum number of entries of a header to read."""


class _Entry(NamedTuple):
    name: str
    params: dict[str, str]
    quality: float


_NONE = _Entry("", {}, 0)


def choose(accept: str | None) -> tuple[Format, str]:
    """Return the format that an Accept header prefers, and the Content-Type of the response.

    The format is text if the header accepts no format of podgpu.
    """
    found: list[tuple[tuple[float, int, int], Format, bool]] = []
    entries = _entries(accept or "")
    for form in _TYPES:
        matches = [(_specificity(form, entry), -at, entry) for at, entry in enumerate(entries)]
        # The quality is that of the most specific entry.
        specificity, order, entry = max(matches, key=itemgetter(0, 1), default=(0, 0, _NONE))
        if specificity and entry.quality > 0:
            # With equal quality, a named type precedes a wildcard; then the order decides.
            preference = (entry.quality, min(specificity, _EXACT), order)
            found.append((preference, form, "escaping" in entry.params))
    if not found:
        return Format.TEXT, Format.TEXT.content_type
    _, form, escaping = max(found, key=itemgetter(0))
    # Names on the page are ASCII, so every escaping scheme leaves them unchanged.
    return form, form.content_type + ("; escaping=underscores" if escaping else "")


def takes_gzip(accept_encoding: str | None) -> bool:
    """Whether a gzip response is acceptable, and not less preferred than an uncompressed one."""
    qualities: dict[str, float] = {}
    for entry in _entries(accept_encoding or ""):
        qualities.setdefault(entry.name, entry.quality)
    gzip = qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0)))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def _specificity(form: Format, entry: _Entry) -> int:
    """Return how exactly an entry names a format.

    0: not at all; 1: `*/*`; 2: `type/*`; 3: type and subtype; 4: also the version.
    """
    kind, subtype, versions = _TYPES[form]
    if entry.name == f"{kind}/{subtype}":
        version = entry.params.get("version", "")
        return _EXACT + bool(version) if version in versions else 0
    if entry.name == f"{kind}/*":
        return 2
    return 1 if entry.name == "*/*" else 0


def _entries(header: str) -> list[_Entry]:
    entries: list[_Entry] = []
    for part in header.split(",", _MAX_ENTRIES)[:_MAX_ENTRIES]:
        name, *rest = part.split(";")
        params: dict[str, str] = {}
        for item in rest:
            key, _, value = item.partition("=")
            params.setdefault(key.strip().lower(), value.strip().strip('"'))
        quality = _quality(params.pop("q", "1"))
        if quality is not None:
            entries.append(_Entry(name.strip().lower(), params, quality))
    return entries


def _quality(text: str) -> float | None:
    if text in {"", "."} or not _QUALITY.fullmatch(text):
        return None
    return min(float(text), 1.0)
