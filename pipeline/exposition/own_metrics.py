"""Render podgpu's own metrics, at each scrape.

Ages of sources must grow between snapshots. Otherwise a dead source would look as fresh as it was
when it died.
"""

from collections.abc import Iterable

from pipeline.base.telemetry import FamilyPoints
from pipeline.exposition.text_format import Format, header, labels, number


def tail(form: Format, families: Iterable[FamilyPoints]) -> bytes:
    """Return podgpu's own metrics and the last line of the page."""
    parts: list[bytes] = []
    for family, points in families:
        lines: list[bytes] = []
        for point in points:
            value = number(point.value)
            if value is None:
                continue
            name = (family.name + point.suffix).encode()
            given = b"{%b}" % labels(point.labels) if point.labels else b""
            lines.append(b"%b%b %b\n" % (name, given, value))
        if lines:
            parts += (header(form, family.name, family.type, family.help), *lines)
    parts.append(form.end)
    return b"".join(parts)
