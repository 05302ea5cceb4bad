"""The text exposition format, line by line, as exporters of all ages write it.

More lenient than a Prometheus server: dcgm-exporter escapes nothing, and a line that is broken must
cost no other.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

Labels: TypeAlias = Mapping[str, str]

_PREFIXES: Final = ("DCGM_", "dcgm_", "podgpu_")
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL: Final = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE: Final = re.compile(r'\\([\\"n])')
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_NO_NUMBERS: Final = {"nan": "nan", "inf": "inf", "+inf": "inf", "-inf": "-inf"}
_LONGEST: Final = 1 << 16


class Sample(NamedTuple):
    """A line with a value.

    Attributes:
        name: of the metric.
        type: what the page says that the metric is; empty if it doesn't.
        labels: as they stand there; of two with one name the first. Lines with the same text have
            the same object.
        value: an integer where it is written as one.
        number: of the line, from 1.
    """

    name: str
    type: str
    labels: Labels
    value: int | float
    number: int


class Malformed(NamedTuple):
    """A line that can't be read."""

    text: str
    number: int


def read(page: bytes) -> Iterator[Sample | Malformed]:
    """Yield the samples of metrics that an exporter of GPUs has; others are passed over."""
    types: dict[str, str] = {}
    known: dict[str, Labels | None] = {}
    for number, raw in enumerate(page.decode("utf-8", "replace").split("\n"), 1):
        line = raw.strip()
        if line.startswith("#"):
            words = line.split(None, 4)
            if len(words) == 4 and words[:2] == ["#", "TYPE"]:
                types[words[2]] = words[3]
        elif line.startswith(_PREFIXES):
            yield _sample(line, number, types, known) or Malformed(line, number)


def _sample(
    line: str, number: int, types: Mapping[str, str], known: dict[str, Labels | None]
) -> Sample | None:
    match = _NAME.match(line)
    if match is None or len(line) > _LONGEST:
        return None
    name, rest = match[0], line[match.end() :].lstrip()
    inside = ""
    if rest.startswith("{"):
        inside, brace, rest = rest[1:].rpartition("}")
        if not brace:
            return None
    value = _value(rest.split())
    if value is None:
        return None
    # A device's labels are the same on all of its lines.
    if inside not in known:
        known[inside] = _labels(inside)
    labels = known[inside]
    return None if labels is None else Sample(name, types.get(name, ""), labels, value, number)


def _labels(text: str) -> Labels | None:
    labels: dict[str, str] = {}
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _LABEL.match(text, at)
        if match is None:
            return None
        labels.setdefault(match[1], _ESCAPE.sub(_unescaped, match[2]))
        at = match.end()
    return labels


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _value(words: list[str]) -> int | float | None:
    """Return the value; a time stamp may stand behind it."""
    if not words or len(words) > 2 or (len(words) == 2 and not _WHOLE.fullmatch(words[1])):
        return None
    text = words[0]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    named = _NO_NUMBERS.get(text.lower())
    return None if named is None else float(named)
