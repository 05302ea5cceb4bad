"""Plays a recording into a join, as fast as it can, and keeps what the sinks would see."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.join import Join
from pipeline.model import NS, ClockTicked, Envelope, Instant, Snapshot
from pipeline.recording import RecordingReader


@dataclass(frozen=True, slots=True)
class Moment:
    """The node at a time.

    Attributes:
        second: the time, in seconds after the beginning of the recording.
        snapshot: everything that is known at this time.
    """

    second: float
    snapshot: Snapshot


def moments(path: Path, until: float, every: float = 0.5) -> Iterator[Moment]:
    """Yield the node at regular times.

    Args:
        path: the recording.
        until: the last time, in seconds.
        every: seconds between two times.
    """
    with RecordingReader(path) as reader:
        join, started = Join(), reader.header.started
        second = 0.0
        for envelope in reader:
            while envelope.at.mono_ns > started.mono_ns + round(second * NS):
                if second > until:
                    return
                yield Moment(second, _snapshot(join, started, second))
                second += every
            join.apply(replace(envelope, relayed_by="recording"))


def _snapshot(join: Join, started: Instant, second: float) -> Snapshot:
    ns = round(second * NS)
    at = Instant(started.mono_ns + ns, started.wall_ns + ns)
    join.apply(Envelope("", "clock", 0, at, ClockTicked()))
    return join.snapshot(at)
