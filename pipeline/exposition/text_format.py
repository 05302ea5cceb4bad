"""The two exposition formats: text 0.0.4 and OpenMetrics 1.0.0.

A sample line is the same in both. What differs is what stands before a family and at the end.
"""

import math
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Literal, TypeAlias

from pipeline.base.safe_text import without_control_characters

Kind: TypeAlias = Literal["gauge", "counter", "summary"]

_LONGEST = 1024
"""Characters of a label value; Kubernetes' names are shorter."""

_WHOLE = 1e15
"""Whole floats below this are written as integers, in full and exactly."""

_FORBIDDEN = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_FORBIDDEN_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Format(Enum):
    """An exposition format."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"

    @property
    def content_type(self) -> str:
        """The answer's Content-Type."""
        return _CONTENT_TYPES[self]

    @property
    def end(self) -> bytes:
        """The last line of a page."""
        return b"" if self is Format.TEXT else b"# EOF\n"


_CONTENT_TYPES = {
    Format.TEXT: "text/plain; version=0.0.4; charset=utf-8",
    Format.OPENMETRICS: "application/openmetrics-text; version=1.0.0; charset=utf-8",
}


def labels(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return `name="value"` pairs with commas between, the values escaped.

    Prometheus' scanner takes a zero byte for the end of the page, no label value may hold what
    isn't UTF-8, and a terminal acts on control characters: see
    `pipeline.base.safe_text.without_control_characters`.
    """
    text = ",".join(
        f'{name}="{without_control_characters(value[:_LONGEST]).translate(_FORBIDDEN)}"'
        for name, value in pairs
    )
    return text.encode("utf-8", "replace")


def number(value: int | float) -> bytes | None:
    """Return a value as it stands in a sample line; None for what is no finite number."""
    if isinstance(value, int):
        return b"%d" % value
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < _WHOLE:
        return b"%d" % value
    return repr(value).encode()


@lru_cache(maxsize=512)
def header(form: Format, name: str, kind: Kind, about: str) -> bytes:
    """Return the lines before a family's samples.

    OpenMetrics wants `_total` on a counter's samples and not on its family. DCGM's counters have no
    `_total`, so there they are of unknown type, and keep the name that everybody queries.
    """
    about = without_control_characters(about).translate(_FORBIDDEN_IN_HELP)
    shown: str = kind
    if form is Format.OPENMETRICS:
        about = about.replace('"', r"\"")
        if kind == "counter":
            shown = "counter" if name.endswith("_total") else "unknown"
            name = name.removesuffix("_total")
    return f"# HELP {name} {about}\n# TYPE {name} {shown}\n".encode("utf-8", "replace")
