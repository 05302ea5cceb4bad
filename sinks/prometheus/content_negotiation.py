"""Choosing what a scraper can read from its Accept and Accept-Encoding headers.

A header is a wish: whatever stands in it, there is an answer, and never an error.
"""

import re
from typing import NamedTuple

from pipeline.exposition.text_format import Format

_TYPES: dict[Format, tuple[str, str, frozenset[str]]] = {
    # On equal wishes the first one here is taken. A version left out means any.
    Format.TEXT: ("text", "plain", frozenset({"", "0.0.4"})),
    Format.OPENMETRICS: ("application", "openmetrics-text", frozenset({"", "1.0.0"})),
}
_QUALITY = re.compile(r"[0-9]?(?:\.[0-9]{0,9})?")
_NAMED = 3
_WIDEST = 64
"""Entries of a header that are looked at."""


class Chosen(NamedTuple):
    """What a page is rendered as.

    Attributes:
        format: the exposition format.
        content_type: for the answer's header.
    """

    format: Format
    content_type: str


class _Entry(NamedTuple):
    name: str
    params: dict[str, str]
    quality: float


def choose(accept: str | None) -> Chosen:
    """Return the format that an Accept header likes best; text where it says nothing usable."""
    best: tuple[tuple[float, int, int], Format, bool] | None = None
    entries = _entries(accept or "")
    for form in _TYPES:
        found = [
            (specific, -at, entry)
            for at, entry in enumerate(entries)
            if (specific := _matches(form, entry))
        ]
        if not found:
            continue
        # The entry that names a type most exactly says how much it is liked.
        specific, place, entry = max(found, key=lambda match: match[:2])
        if entry.quality <= 0:
            continue
        # Equally liked: what was named beats a wildcard, and of two the first one wins.
        wish = (entry.quality, min(specific, _NAMED), place)
        if best is None or wish > best[0]:
            best = wish, form, "escaping" in entry.params
    if best is None:
        return Chosen(Format.TEXT, Format.TEXT.content_type)
    _, form, escaping = best
    # Names on the page are plain ASCII: every escaping leaves them as they are.
    return Chosen(form, form.content_type + ("; escaping=underscores" if escaping else ""))


def takes_gzip(accept_encoding: str | None) -> bool:
    """Whether a gzip body is acceptable, and not worse than a plain one."""
    wishes: dict[str, float] = {}
    for entry in _entries(accept_encoding or ""):
        wishes.setdefault(entry.name, entry.quality)
    gzip = wishes.get("gzip", wishes.get("x-gzip", wishes.get("*", 0.0)))
    return gzip > 0 and gzip >= wishes.get("identity", 0.0)


def _matches(form: Format, entry: _Entry) -> int:
    """Return how exactly an entry names a format: 0 not at all, 1 as `*/*`, up to 4."""
    kind, subtype, versions = _TYPES[form]
    if entry.name == f"{kind}/{subtype}":
        version = entry.params.get("version", "")
        return _NAMED + bool(version) if version in versions else 0
    if entry.name == f"{kind}/*":
        return 2
    return 1 if entry.name == "*/*" else 0


def _entries(header: str) -> list[_Entry]:
    entries: list[_Entry] = []
    for part in header.split(",", _WIDEST)[:_WIDEST]:
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
