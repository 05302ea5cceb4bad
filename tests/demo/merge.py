"""Merge recordings of several nodes into the recording of one node: that of `podgpu demo`.

    python -m tests.demo.merge -o OUTPUT [--seconds 210] RECORDING...

The GPUs of the recordings get consecutive indexes, in the order of the arguments. All recordings
begin at the same time, and end with the shortest one. Sources of one kind become one source.
Identifiers of GPUs, pods and the machine are replaced by sample ones (see `renaming`).
"""

import argparse
import gzip
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipeline.base.version import VERSION
from pipeline.fields.field_plan import by_name
from pipeline.model import (
    NS,
    DevicesDiscovered,
    Envelope,
    Event,
    Instant,
    Reading,
    SamplesTaken,
    SourceAdded,
    TotalsRestored,
)
from pipeline.recording import (
    TIMESTAMP_SUFFIX,
    Header,
    RecordingReader,
    RecordingWriter,
    shifted,
)
from tests.demo import states
from tests.demo.renaming import Renaming
from tests.demo.states import State

NODE: Final = "demo"
LEAD_NS: Final = NS // 10
"""How long after its beginning the merged recording has its first readings."""


_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Input:
    """A recording with times and identifiers of the merged one.

    Attributes:
        header: its header, unchanged.
        events: its events, sorted by time.
        gpus: number of its GPUs.
    """

    header: Header
    events: Sequence[Envelope]
    gpus: int

    @property
    def end_ns(self) -> int:
        """When its last event was emitted, on the monotonic clock."""
        return max(one.at.mono_ns for one in self.events)


def read(path: Path, number: int, first: int, started: Instant | None) -> Input:
    """Read a recording.

    Args:
        path: the file.
        number: its number among the recordings that are merged, from 0.
        first: index of its first GPU in the merged recording.
        started: start time of the merged recording; None for that of this one.

    Raises:
        RecordingError: the file is not a recording, or is damaged.
        ValueError: it has no readings.
    """
    with RecordingReader(path) as reader:
        envelopes = list(reader)
        header = reader.header
    found = [one.event for one in envelopes]
    devices = next((one.devices for one in found if isinstance(one, DevicesDiscovered)), ())
    times = [
        reading.at.mono_ns
        for one in found
        if isinstance(one, SamplesTaken)
        for reading in one.readings
    ]
    if not devices or not times:
        raise ValueError(f"{path} has no GPUs with readings: record it with the source nvml")
    renaming = Renaming(number, first, header.node, NODE)
    renaming.discover(devices)
    started = started or header.started
    # What happened before the first reading, such as the start of podgpu, is left out.
    begin_ns = min(times) - LEAD_NS

    def move(moment: Instant) -> Instant:
        # Whole milliseconds, which compress much better.
        ns = (moment.mono_ns - begin_ns) // _MS * _MS
        return Instant(started.mono_ns + ns, started.wall_ns + ns)

    events = [
        replace(
            one,
            at=max(move(one.at), started),
            event=shifted(rounded(renaming(one)), move, lambda good_for_ns: good_for_ns),
        )
        for one in envelopes
        if not isinstance(one.event, TotalsRestored)
    ]
    events.sort(key=lambda one: one.at.mono_ns)
    gpus = sum(device.mig is None for device in devices)
    return Input(replace(header, started=started), events, gpus)


def rounded(event: Event) -> Event:
    """Return an event whose gauges have four significant digits, unless they are whole numbers.

    A recording is mostly gauges, and digits that are noise do not compress.
    """
    if not isinstance(event, SamplesTaken):
        return event
    return replace(event, readings=tuple([_rounded(one) for one in event.readings]))


def _rounded(reading: Reading) -> Reading:
    field = by_name(reading.field)
    is_gauge = field is not None and field.type == "gauge"
    if not isinstance(reading.value, float) or not is_gauge or _is_time(reading):
        return reading
    return reading._replace(value=float(f"{reading.value:.4g}"))


def _is_time(reading: Reading) -> bool:
    return reading.field.endswith(TIMESTAMP_SUFFIX)


def read_all(paths: Sequence[Path]) -> list[Input]:
    """Read recordings, in the order of their GPUs. For errors, see `read`."""
    found: list[Input] = []
    for number, path in enumerate(paths):
        first = sum(one.gpus for one in found)
        found.append(read(path, number, first, found[0].header.started if found else None))
    return found


class _Merge:
    """Joins the events of inputs."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._started = inputs[0].header.started
        kinds = {one.kind: one.source for each in reversed(inputs) for one in each.events}
        self._names = {kind: kinds[kind] for each in inputs for kind in _kinds(each.events)}
        self._states: dict[tuple[str, type[State]], dict[int, State]] = {}
        for number, each in enumerate(inputs):
            for one in each.events:
                if states.is_state(one.event):
                    known = self._states.setdefault((one.kind, type(one.event)), {})
                    known.setdefault(number, one.event)

    def events(self) -> Iterator[Envelope]:
        """Yield all events, those that replace a state first."""
        yield from self._beginning()
        end_ns = min(one.end_ns for one in self._inputs)
        every = [
            (one.at.mono_ns, number, place, one)
            for number, each in enumerate(self._inputs)
            for place, one in enumerate(each.events)
            if one.at.mono_ns <= end_ns
        ]
        begun: set[tuple[str, type[State], int]] = set()
        for _, number, _, one in sorted(every, key=lambda item: item[:3]):
            event = one.event
            if states.is_state(event):
                key = (one.kind, type(event), number)
                known = self._states[one.kind, type(event)]
                if key in begun:
                    known[number] = event
                    yield self._named(one, self._joined(known))
                # The merged recording begins with the first one.
                begun.add(key)
            else:
                self._update(one, number)
                yield self._named(one, event)

    def _beginning(self) -> Iterator[Envelope]:
        for kind_of_event in states.ORDER:
            for order, (kind, name) in enumerate(self._names.items()):
                known = self._states.get((kind, kind_of_event))
                if known is None:
                    continue
                event = self._joined(known)
                if isinstance(event, SourceAdded):
                    event = replace(event, order=order)
                yield Envelope(name, kind, 0, self._started, event)

    def _named(self, one: Envelope, event: Event) -> Envelope:
        return Envelope(self._names[one.kind], one.kind, 0, one.at, event)

    def _update(self, one: Envelope, number: int) -> None:
        for (kind, _), known in self._states.items():
            changed = states.updated(known.get(number), one.event) if kind == one.kind else None
            if changed is not None:
                known[number] = changed

    def _joined(self, known: dict[int, State]) -> State:
        return states.joined([known[number] for number in sorted(known)])


def _kinds(events: Iterable[Envelope]) -> dict[str, None]:
    return dict.fromkeys(one.kind for one in events)


def merge(inputs: Sequence[Input], output: Path, seconds: float) -> None:
    """Write the merged recording.

    Args:
        inputs: the recordings.
        output: the file; it is replaced.
        seconds: maximum length.

    Raises:
        RecordingError: the file cannot be written.
    """
    header = replace(inputs[0].header, node=NODE, version=VERSION)
    end_ns = header.started.mono_ns + round(seconds * NS)
    with RecordingWriter(output, header, overwrite=True) as writer:
        for seq, one in enumerate(_Merge(inputs).events(), 1):
            if one.at.mono_ns > end_ns:
                break
            writer.write(replace(one, seq=seq))
    text = gzip.decompress(output.read_bytes())
    output.write_bytes(gzip.compress(text, 9, mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=210)
    parser.add_argument("recordings", type=Path, nargs="+")
    arguments = parser.parse_args()
    found = [path for path in arguments.recordings if path.exists()]
    for path in arguments.recordings:
        if path not in found:
            print(f"{path} does not exist: its GPUs are left out", file=sys.stderr)
    merge(read_all(found), arguments.output, arguments.seconds)
    size = arguments.output.stat().st_size
    print(f"merged {len(found)} recordings into {arguments.output}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
