"""Availability of a node's GPUs: which are free, held in part or held."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Final, Literal, TypeAlias

from pipeline.model.devices import compute_slices
from pipeline.model.holders import Attribution, Holder
from pipeline.model.topology_tree import Group, Topology

CardState: TypeAlias = Literal["free", "part", "held", "absent"]
"""`absent`: the driver does not show the GPU now, or its holders are unknown. It is not free."""

_PRECISION: Final = 1e-6


@dataclass(frozen=True, slots=True)
class CardUse:
    """How much of a GPU is held.

    Attributes:
        state: `free` (no holders), `part` (a part is held), `held` (all of it is held) or `absent`.
        free_share: the part of the GPU without a holder, in [0, 1]; None where it is unknown. For a
            GPU with MIG instances, the free part of the existing instances, by compute slices. 0
            for an absent GPU.
        attributions: the attributions of the GPU and of its MIG instances, in device order; empty
            if the GPU is unknown.
    """

    state: CardState
    free_share: float | None
    attributions: tuple[Attribution, ...] = ()

    @property
    def holders(self) -> tuple[tuple[str, Holder], ...]:
        """All holders of the GPU and its MIG instances, each with the uuid of the device."""
        return tuple((a.device.uuid, holder) for a in self.attributions for holder in a.holders)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Availability:
    """Which cards of a topology are free; the same object as long as nothing in it changes.

    Attributes:
        topology: the topology of the node.
        cards: how much of each card is held, in the order of `topology.cards`.
        free: mask of the cards without any holder.
        part: mask of the cards that are held in part.
        held: mask of the cards that are held completely.
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
        """Return the largest number of free cards in one of the groups; 0 without groups."""
        return max((self.free_of(group).bit_count() for group in groups), default=0)


def availability(
    topology: Topology,
    attributions: Mapping[str, Attribution],
    previous: Availability | None = None,
) -> Availability:
    """Return which cards of a topology are free.

    Args:
        topology: the topology of the node.
        attributions: `Layout.attributions`, by device uuid.
        previous: the last result. Unchanged cards keep their objects, and if no card changed,
            `previous` itself is returned. The value of the result does not depend on it.
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
    """Return the state of a GPU with these holders, and the share that is left; None if unknown.

    A holder with an unknown share holds the whole GPU, unless it has replicas. Then other
    containers may hold replicas too, and the number of all replicas is unknown.
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
    """Return the free part of a GPU's MIG instances, by compute slices; None if it is unknown."""
    total = free = 0.0
    for attribution in instances:
        place = attribution.device.mig
        slices = compute_slices(place.profile) if place is not None else None
        share = _left(attribution.holders)[1] if attribution.holders else 1.0
        if slices is None or share is None:
            return None
        total += slices
        free += slices * share
    return round(free / total, 6)
