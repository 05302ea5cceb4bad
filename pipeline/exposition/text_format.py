"""The two exposition formats: Prometheus text 0.0.4 and OpenMetrics 1.0.0.

Sample lines are the same in both. Only headers of families and the end of the page are different.
"""

import math
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Literal, TypeAlias

from pipeline.base.safe_text import without_control_characters
from pipeline.base.telemetry import FamilyPoints

Kind: TypeAlias = Literal["gauge", "counter", "summary"]

_MAX_LENGTH = 1024
"""Maximum number of characters of a label value, which is cut. Names in Kubernetes are shorter."""

_INTEGER_LIMIT = 1e15
"""Whole floats below this limit are written as integers, without loss."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Format(Enum):
    """An exposition format. Its value is the Content-Type of a response."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @property
    def content_type(self) -> str:
        """The Content-Type of a response."""
        return self.value

    @property
    def end(self) -> bytes:
        """The last line of a page."""
        return b"" if self is Format.TEXT else b"# EOF\n"


def labels(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return `name="value"` pairs separated by commas, with escaped values.

    Control characters are replaced, see `pipeline.base.safe_text.without_control_characters`:
    Prometheus' scanner takes a zero byte for the end of the page, and terminals interpret other
    control characters. Characters that are not valid in UTF-8 are replaced too.
    """
    text = ",".join(
        f'{name}="{without_control_characters(value[:_MAX_LENGTH]).translate(_ESCAPES)}"'
        for name, value in pairs
    )
    return text.encode("utf-8", "replace")


def number(value: int | float) -> bytes | None:
    """Return a value as text for a sample line; None if it is not a finite number."""
    if isinstance(value, int):
        return b"%d" % value
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < _INTEGER_LIMIT:
        return b"%d" % value
    return repr(value).encode()


@lru_cache(maxsize=512)
def header(form: Format, name: str, kind: Kind, about: str) -> bytes:
    """Return the HELP and TYPE lines of a family.

    OpenMetrics requires the suffix `_total` on the samples of a counter, but not on the family.
    DCGM's counters have no `_total`. In OpenMetrics they get the type `unknown`, so that they keep
    the names that existing queries use.
    """
    about = without_control_characters(about).translate(_HELP_ESCAPES)
    shown: str = kind
    if form is Format.OPENMETRICS:
        about = about.replace('"', r"\"")
        if kind == "counter":
            shown = "counter" if name.endswith("_total") else "unknown"
            name = name.removesuffix("_total")
    return f"# HELP {name} {about}\n# TYPE {name} {shown}\n".encode("utf-8", "replace")


def tail(form: Format, families: Iterable[FamilyPoints]) -> bytes:
    """Return podgpu's own metrics and the end of the page: `# EOF` in OpenMetrics, else nothing.

    These metrics are rendered at each scrape, because the ages of sources must grow between
    snapshots. Otherwise the reports of a dead source would look fresh.
    """
    parts: list[bytes] = []
    for family, points in families:
        lines: list[bytes] = []
        for point in points:
            if (value := number(point.value)) is not None:
                name = (family.name + point.suffix).encode()
                pairs = b"{%b}" % labels(point.labels) if point.labels else b""
                lines.append(b"%b%b %b\n" % (name, pairs, value))
        if lines:
            parts += (header(form, family.name, family.type, family.help), *lines)
    parts.append(form.end)
    return b"".join(parts)
