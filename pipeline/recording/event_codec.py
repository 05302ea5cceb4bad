"""Conversion of envelopes to and from lines of JSON."""

from collections import Counter
from types import MappingProxyType
from typing import Any, Final, cast, get_args

import msgspec

from pipeline.model import (
    ClockTicked,
    Envelope,
    Event,
    Instant,
    ProcessesSampled,
    SamplesTaken,
)
from pipeline.recording.errors import LineError
from pipeline.recording.json_text import dump, load
from pipeline.recording.sample_codec import (
    Offset,
    Samples,
    SamplesDecoder,
    SamplesEncoder,
    TableLine,
    TableWriter,
    instant_at,
    offset,
)
from pipeline.recording.usage_sample_codec import Uses, UsesDecoder, UsesEncoder

# The other events are rare. They are written with all keys, so that users can read them. msgspec
# ignores keys that a newer podgpu adds.
_EVENTS_BY_NAME: Final = MappingProxyType(
    {
        event.__name__: event
        for event in get_args(Event)
        if event not in {SamplesTaken, ProcessesSampled, ClockTicked}
    }
)
_SAMPLES: Final = SamplesTaken.__name__
_USAGE_SAMPLES: Final = ProcessesSampled.__name__


class _Line(msgspec.Struct):
    source: str
    kind: str
    seq: int
    at: Offset
    event: str
    body: Any


class Encoder:
    """Encodes the envelopes of one recording as lines, in order.

    Args:
        started: start time of the recording.
    """

    def __init__(self, started: Instant) -> None:
        self._started = started
        self._samples = SamplesEncoder()
        self._uses = UsesEncoder()

    def encode(self, envelope: Envelope) -> bytes:
        """Return the line; empty bytes for `ClockTicked`: a replay creates its own ticks."""
        event = envelope.event
        if isinstance(event, ClockTicked):
            return b""
        written: tuple[TableWriter, TableLine] | None = None
        if isinstance(event, SamplesTaken):
            written = self._samples, self._samples.encode(event, envelope.at)
        elif isinstance(event, ProcessesSampled):
            written = self._uses, self._uses.encode(event, envelope.at)
        line = dump(
            {
                "source": envelope.source,
                "kind": envelope.kind,
                "seq": envelope.seq,
                "at": offset(self._started, envelope.at),
                "event": type(event).__name__,
                "body": msgspec.to_builtins(event if written is None else written[1]),
            }
        )
        if written is not None:
            tables, body = written
            tables.count(body, len(line))
        return line


class Decoder:
    """Decodes the lines of one recording, in order.

    Attributes:
        skipped: number of skipped events by type. podgpu does not know these types.

    Args:
        started: start time of the recording.
    """

    def __init__(self, started: Instant) -> None:
        self.skipped: Counter[str] = Counter()
        self._started = started
        self._samples = SamplesDecoder()
        self._uses = UsesDecoder()

    def decode(self, text: bytes) -> Envelope | None:
        """Return the envelope of a line; None if the type of its event is unknown.

        Raises:
            LineError: the line is not a valid envelope.
        """
        parsed = load(text)
        try:
            line = msgspec.convert(parsed, _Line)
            at = instant_at(self._started, line.at)
            if line.event == _SAMPLES:
                event: Event = self._samples.decode(
                    msgspec.convert(line.body, Samples), at, len(text)
                )
            elif line.event == _USAGE_SAMPLES:
                event = self._uses.decode(msgspec.convert(line.body, Uses), at, len(text))
            elif (event_type := _EVENTS_BY_NAME.get(line.event)) is not None:
                event = cast("Event", msgspec.convert(line.body, event_type))
            else:
                self._skip(line.event)
                return None
        except (msgspec.ValidationError, ValueError, IndexError) as error:
            raise LineError(f"is not a valid event: {error}") from error
        return Envelope(line.source, line.kind, line.seq, at, event)

    def _skip(self, event: str) -> None:
        # The number of types is limited, whatever the file contains.
        known = event in self.skipped or len(self.skipped) < 16
        self.skipped[event[:64] if known else "others"] += 1
