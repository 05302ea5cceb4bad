"""Make a small recording of busy GPUs, for the test that no alert fires on them.

    python -m tests.deploy.alerts.compact RECORDING OUTPUT

Keeps the readings that the chart's default configuration takes: its fields, at its intervals.
Usage samples are left out. Identifiers are replaced as in the recording of `podgpu demo`. The input
is a recording of `tests.gpu.demo_pods`.
"""

import gzip
import sys
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline.fields.field_plan import FieldPlan
from pipeline.model import (
    NS,
    ClaimsReplaced,
    Envelope,
    Event,
    PodsReplaced,
    ProcessesSampled,
    Reading,
    ResourcesAdvertised,
    SamplesTaken,
)
from pipeline.recording import RecordingWriter
from tests.demo.merge import read

INTERVAL_NS: Final = 5 * NS
CLAIMS_NS: Final = 10 * NS
VALID: Final = 3
"""Readings and claims are valid for so many intervals, as those of the sources."""


class _Thinned:
    """Drops what comes sooner than an interval after the same."""

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}

    def due(self, key: Hashable, at_ns: int, interval_ns: int) -> bool:
        # Half a second less, because rounds are not exactly one second apart.
        last = self._last.get(key)
        if last is not None and at_ns - last < interval_ns - NS // 2:
            return False
        self._last[key] = at_ns
        return True


def compacted(events: Iterator[Envelope]) -> Iterator[Envelope]:
    """Yield the events that remain."""
    fields = {field.name for field in FieldPlan().fields}
    thinned = _Thinned()

    def kept(reading: Reading, at_ns: int) -> bool:
        series = (reading.device, reading.field, reading.attrs)
        return reading.field in fields and thinned.due(series, at_ns, INTERVAL_NS)

    for one in events:
        at_ns, event = one.at.mono_ns, one.event
        made: Event | None = None
        match event:
            case SamplesTaken():
                readings = tuple(
                    [
                        each._replace(good_for_ns=max(each.good_for_ns, VALID * INTERVAL_NS))
                        for each in event.readings
                        if kept(each, at_ns)
                    ]
                )
                made = SamplesTaken(readings) if readings else None
            case ClaimsReplaced() | PodsReplaced() | ResourcesAdvertised():
                if thinned.due((one.source, type(event), event), at_ns, CLAIMS_NS):
                    good_for_ns = max(event.good_for_ns, VALID * CLAIMS_NS)
                    made = replace(event, good_for_ns=good_for_ns)
            case ProcessesSampled():
                pass
            case _:
                made = event
        if made is not None:
            yield replace(one, event=made)


def main() -> int:
    source, output = map(Path, sys.argv[1:])
    found = read(source, 0, 0, None)
    header = replace(found.header, node="busy")
    with RecordingWriter(output, header, overwrite=True) as writer:
        for seq, one in enumerate(compacted(iter(found.events)), 1):
            writer.write(replace(one, seq=seq))
    output.write_bytes(gzip.compress(gzip.decompress(output.read_bytes()), 9, mtime=0))
    print(f"{output}: {output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
