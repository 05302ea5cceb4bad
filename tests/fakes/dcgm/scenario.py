"""Scenarios of the fake DCGM, and the text file that the C library reads. Its lines:

epoch N                     the run of the engine: 0 while it is down, a new number after a restart
hang CALL 1                 the call doesn't return while the file has this line
return CALL CODE            the call fails
unwatchable GPU CODE        the GPU's profiling fields can't be watched
unreadable KIND ENTITY CODE its values can't be read
frozen TS                   all values have this timestamp
gpu ID
instance ID GPU GI SLICES
compute ID INSTANCE GI CI
value KIND ENTITY FIELD TYPE VALUE
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

GPU, INSTANCE = 1, 4

AMPERE, HOPPER = 8 << 16, 9 << 16

Values = Mapping[int, float | int | str]


@dataclass(frozen=True)
class Slice:
    """A GPU instance with the ids of its compute instances."""

    gi: int
    cis: tuple[int, ...] = (0,)
    profile: str = "1g.5gb"
    values: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Card:
    """A GPU of the engine."""

    id: int
    capability: int = AMPERE
    values: Values = field(default_factory=dict)
    slices: tuple[Slice, ...] = ()
    minor: int | None = None
    uuid: str = ""

    @property
    def name(self) -> str:
        return self.uuid or f"GPU-{self.id:08x}-5eed-4a5e-9c0d-000000000000"


@dataclass(frozen=True)
class Scenario:
    """The state and the behaviour of the engine and its library."""

    cards: tuple[Card, ...] = ()
    epoch: int = 1
    hangs: tuple[str, ...] = ()
    returns: Mapping[str, int] = field(default_factory=dict)
    unwatchable: Mapping[int, int] = field(default_factory=dict)
    unreadable: Mapping[tuple[int, int], int] = field(default_factory=dict)
    frozen: int = 0

    def lines(self) -> Iterator[str]:
        yield f"epoch {self.epoch}"
        yield from (f"hang {call} 1" for call in self.hangs)
        yield from (f"return {call} {code}" for call, code in self.returns.items())
        yield from (f"unwatchable {gpu} {code}" for gpu, code in self.unwatchable.items())
        for (kind, entity), code in self.unreadable.items():
            yield f"unreadable {kind} {entity} {code}"
        if self.frozen:
            yield f"frozen {self.frozen}"
        for card in self.cards:
            yield from _card(card)


def _card(card: Card) -> Iterator[str]:
    yield f"gpu {card.id}"
    about: Values = {
        50: "NVIDIA A100-SXM4-40GB",
        52: card.id,
        54: card.name,
        55: card.id if card.minor is None else card.minor,
        57: f"00000000:{card.id + 1:02X}:00.0",
        63: card.capability,
    }
    yield from _values(GPU, card.id, {**about, **card.values})
    for number, one in enumerate(card.slices):
        entity = card.id * 8 + number
        yield f"instance {entity} {card.id} {one.gi} {one.profile.partition('g.')[0]}"
        for ci in one.cis:
            yield f"compute {entity * 8 + ci} {entity} {one.gi} {ci}"
        yield from _values(INSTANCE, entity, {50: one.profile, **one.values})


def _values(kind: int, entity: int, values: Values) -> Iterator[str]:
    for number, value in values.items():
        letter = {float: "d", int: "i", str: "s"}[type(value)]
        yield f"value {kind} {entity} {number} {letter} {value!s}"
