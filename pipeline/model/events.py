"""What sources tell the join: a noun and what happened to it.

Facts (`SamplesTaken`) describe devices; all others are dimensions. A `...Replaced` event is the
whole of what its source knows, so that applying it twice changes nothing.
"""

from dataclasses import dataclass
from typing import TypeAlias

from pipeline.model.claims import Claim
from pipeline.model.devices import Device
from pipeline.model.readings import ProcessList, Reading
from pipeline.model.time import Instant


@dataclass(frozen=True, slots=True)
class DevicesDiscovered:
    """All devices that the source can enumerate now, MIG instances included."""

    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class SamplesTaken:
    """What one round of sampling read.

    Attributes:
        readings: a patch: those not named stand until they are no longer good.
        processes: whole lists, one for each device whose processes could be listed.
    """

    readings: tuple[Reading, ...]
    processes: tuple[ProcessList, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimsReplaced:
    """Every claim of the source. Said again unchanged, it confirms that they still stand.

    Attributes:
        claims: all of them; empty means that nobody holds anything.
        good_for_ns: how long the claims stand when the source falls silent.
    """

    claims: tuple[Claim, ...]
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class SourceAdded:
    """The runtime starts a source. Emitted by the runtime, before the source's own events.

    Attributes:
        order: place in the configuration file; of two sources that read the same field of the same
            device the earlier one wins.
    """

    order: int


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source can't do its work now; what it said before stands until it is no longer good."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    """The source left the configuration: its devices, readings and claims are withdrawn."""


@dataclass(frozen=True, slots=True)
class ClockTicked:
    """Time went on while every source was silent: what is no longer good has to go all the same.

    Every envelope brings its time along; the join knows of time from envelopes alone, and so stays
    pure.
    """


Event: TypeAlias = (
    DevicesDiscovered
    | SamplesTaken
    | ClaimsReplaced
    | SourceAdded
    | SourceLost
    | SourceRemoved
    | ClockTicked
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event on its way through the inbox.

    Attributes:
        source: name of the source in the configuration.
        kind: the source's kind.
        seq: number of the envelope in the inbox, from 1.
        at: when the event was emitted.
        via: the source that relayed another's event; empty for a source's own. What comes via a
            source lives and ends with it.
    """

    source: str
    kind: str
    seq: int
    at: Instant
    event: Event
    via: str = ""


@dataclass(frozen=True, slots=True)
class HolderChanged:
    """A hint from the join: these devices changed hands.

    Attributes:
        devices: uuids; for a MIG instance its own, not the parent's.
    """

    devices: frozenset[str]
