"""What is free of a node's GPUs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Final, Literal, TypeAlias

from pipeline.model.holders import Attribution, Holder
from pipeline.model.topology_tree import Group, Topology

CardState: TypeAlias = Literal["free", "part", "held", "absent"]
"""`absent`: the driver doesn't show it now, or nothing is known of its holders: not free."""

_SLICES: Final = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")
_PRECISION: Final = 1e-6


@dataclass(frozen=True, slots=True)
class CardUse:
    """How much of a GPU is held.

    Attributes:
        state: nobody holds any of it; some hold a part; it is held whole; it isn't there.
        free_share: part of it that nobody holds, in [0, 1]; None where nobody says. Of a GPU with
            MIG instances, the part of the instances that there are, by their compute slices.
        attributions: the GPU's own and those of its MIG instances, in device order; empty if the
            GPU is unknown.
    """

    state: CardState
    free_share: float | None
    attributions: tuple[Attribution, ...] = ()

    @property
    def holders(self) -> tuple[tuple[str, Holder], ...]:
        """Who holds any of it, each with the uuid of the GPU or the MIG instance."""
        return tuple((a.device.uuid, holder) for a in self.attributions for holder in a.holders)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Availability:
    """What is free of a topology's cards; the same object while nothing of that changes.

    Attributes:
        topology: whose.
        cards: in the order of `topology.cards`.
        free: mask of the cards that nobody holds any of.
        part: mask of those that are held in part.
        held: mask of those that are held whole.
    """

    topology: Topology
    cards: tuple[CardUse, ...]
    free: int = field(init=False, default=0)
    part: int = field(init=False, default=0)
    held: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        for state in ("free", "part", "held"):
            mask = sum(1 << n for n, use in enumerate(self.cards) if use.state == state)
            object.__setattr__(self, state, mask)

    def free_of(self, group: Group) -> int:
        """Return the mask of a group's free cards."""
        return group.mask & self.free

    def largest(self, groups: Iterable[Group]) -> int:
        """Return how many cards are free in the group of these that has most; 0 without any."""
        return max((self.free_of(group).bit_count() for group in groups), default=0)


def availability(
    topology: Topology,
    attributions: Mapping[str, Attribution],
    previous: Availability | None = None,
) -> Availability:
    """Find out what is free.

    Args:
        topology: the node's.
        attributions: `Layout.attributions`, by device uuid.
        previous: what was free before; of it stands what hasn't changed since, and all of it is
            returned if nothing has. The outcome is equal with and without.
    """
    by_card: dict[str, list[Attribution]] = {card.uuid: [] for card in topology.cards}
    for attribution in attributions.values():
        found = by_card.get(attribution.device.gpu_uuid)
        if found is not None:
            found.append(attribution)
    if previous is None or previous.topology is not topology:
        uses = tuple(_use(uuid, tuple(found)) for uuid, found in by_card.items())
        return Availability(topology, uses)
    uses = tuple(
        use if use.attributions == (known := tuple(found)) else _use(uuid, known)
        for (uuid, found), use in zip(by_card.items(), previous.cards, strict=True)
    )
    same = all(new is old for new, old in zip(uses, previous.cards, strict=True))
    return previous if same else Availability(topology, uses)


def _use(uuid: str, attributions: tuple[Attribution, ...]) -> CardUse:
    own = next((a for a in attributions if a.device.uuid == uuid), None)
    if own is None or not own.present:
        return CardUse("absent", 0.0, attributions)
    instances = [a for a in attributions if a.device.mig is not None]
    if not own.holders:
        if not any(a.holders for a in instances):
            return CardUse("free", 1.0, attributions)
        return CardUse("part", _free_instances(instances), attributions)
    state, share = _left(own.holders)
    if state == "part" and any(a.holders for a in instances):
        share = None
    return CardUse(state, share, attributions)


def _left(holders: tuple[Holder, ...]) -> tuple[CardState, float | None]:
    """Return what the holders of a GPU leave of it.

    A holder whose share nobody tells has all of it, unless it was given replicas: then others may
    have some, and how many there are in all is not told.
    """
    if any(h.share is None and not h.replicas for h in holders):
        return "held", 0.0
    total = fsum(h.share for h in holders if h.share is not None)
    if total > 1 - _PRECISION:
        return "held", 0.0
    if any(h.share is None for h in holders):
        return "part", None
    return "part", round(1 - total, 6)


def _free_instances(instances: list[Attribution]) -> float | None:
    """Return the part of a GPU's MIG instances that nobody holds, by their compute slices."""
    total = free = 0.0
    for attribution in instances:
        place = attribution.device.mig
        profile = _SLICES.match(place.profile) if place is not None else None
        if profile is None:
            return None
        # `1c.3g.40gb`: one slice of a GPU instance of three; `3g.40gb`: all three.
        slices = int(profile[1] or profile[2])
        share = _left(attribution.holders)[1] if attribution.holders else 1.0
        if share is None:
            return None
        total += slices
        free += slices * share
    return round(free / total, 6)
