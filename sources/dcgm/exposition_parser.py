"""Parses the text exposition format line by line, as exporters of all releases write it.

The parser is more lenient than Prometheus: dcgm-exporter escapes nothing, and a malformed line must
not affect the others.
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
_NON_FINITE: Final = {"nan": "nan", "inf": "inf", "+inf": "inf", "-inf": "-inf"}
_MAX_LINE: Final = 1 << 16


class Sample(NamedTuple):
    """A line with a value.

    Attributes:
        name: name of the metric.
        type: type of the metric according to the page; empty if the page has none.
        labels: the labels; of several labels with one name, the first one. Lines with the same
            label text have the same object.
        value: the value; an integer if it is written as one.
        number: number of the line, from 1.
    """

    name: str
    type: str
    labels: Labels
    value: int | float
    number: int


class Malformed(NamedTuple):
    """A line that cannot be parsed."""

    text: str
    number: int


def read(page: bytes) -> Iterator[Sample | Malformed]:
    """Yield the samples of metrics of GPU exporters, and their malformed lines; ignore others."""
    types: dict[str, str] = {}
    label_sets: dict[str, Labels | None] = {}
    for number, raw in enumerate(page.decode("utf-8", "replace").split("\n"), 1):
        line = raw.strip()
        if line.startswith("#"):
            words = line.split(None, 4)
            if len(words) == 4 and words[:2] == ["#", "TYPE"]:
                types[words[2]] = words[3]
        elif line.startswith(_PREFIXES):
            yield _sample(line, number, types, label_sets) or Malformed(line, number)


def _sample(
    line: str, number: int, types: Mapping[str, str], label_sets: dict[str, Labels | None]
) -> Sample | None:
    match = _NAME.match(line)
    if match is None or len(line) > _MAX_LINE:
        return None
    name, rest = match[0], line[match.end() :].lstrip()
    label_text = ""
    if rest.startswith("{"):
        label_text, brace, rest = rest[1:].rpartition("}")
        if not brace:
            return None
    value = _value(rest.split())
    if value is None:
        return None
        # Many lines have the same labels, so each label text is parsed once.
    if label_text not in label_sets:
        label_sets[label_text] = _labels(label_text)
    labels = label_sets[label_text]
    return None if labels is None else Sample(name, types.get(name, ""), labels, value, number)


def _labels(text: str) -> Labels | None:
    labels: dict[str, str] = {}
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _LABEL.match(text, position)
        if match is None:
            return None
        labels.setdefault(
            match[1], _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], match[2])
        )
        position = match.end()
    return labels


def _value(words: list[str]) -> int | float | None:
    """Return the value, which a time stamp may follow."""
    if not words or len(words) > 2 or (len(words) == 2 and not _WHOLE.fullmatch(words[1])):
        return None
    text = words[0]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    named = _NON_FINITE.get(text.lower())
    return None if named is None else float(named)
