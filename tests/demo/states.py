"""States that sources report as a whole, joined over the recordings of a merge.

Some events replace the whole state of their source, such as all devices or all claims. The merged
source has the union of what the recordings report. A recording that has not reported yet counts
with its first report, so that the first event of the merged source is complete.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeGuard, cast

from pipeline.model import (
    AdvertisedResource,
    ClaimsReplaced,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    Device,
    DeviceAliasesReplaced,
    DevicesDiscovered,
    Event,
    PodDeleted,
    PodsReplaced,
    PodUpserted,
    RawDeviceId,
    ResourcesAdvertised,
    SourceAdded,
    TopologyCard,
    TopologyPair,
    TopologyRead,
)
from pipeline.model.topology_facts import Level

State: TypeAlias = (
    SourceAdded
    | DevicesDiscovered
    | TopologyRead
    | DeviceAliasesReplaced
    | ResourcesAdvertised
    | PodsReplaced
    | ContainersReplaced
    | ClaimsReplaced
)

ORDER: Final[tuple[type[State], ...]] = (
    SourceAdded,
    DevicesDiscovered,
    TopologyRead,
    DeviceAliasesReplaced,
    ResourcesAdvertised,
    PodsReplaced,
    ContainersReplaced,
    ClaimsReplaced,
)
"""All events that replace a state, in the order in which the merged recording begins with them."""


def is_state(event: Event) -> TypeGuard[State]:
    """Return whether an event replaces a state of its source."""
    return isinstance(event, ORDER)


def updated(state: State | None, event: Event) -> State | None:
    """Return the state of pods or containers after a change; None if the event changes none."""
    match state, event:
        case PodsReplaced(), PodUpserted(pod):
            kept = tuple(one for one in state.pods if one.info.uid != pod.info.uid)
            return replace(state, pods=(*kept, pod))
        case PodsReplaced(), PodDeleted(uid):
            return replace(state, pods=tuple(one for one in state.pods if one.info.uid != uid))
        case ContainersReplaced(), ContainerStarted(container):
            key = container.subject.container_id
            return replace(state, containers=(*_without(state, key), container))
        case ContainersReplaced(), ContainerStopped(key):
            return replace(state, containers=tuple(_without(state, key)))
        case _:
            return None


def _without(state: ContainersReplaced, key: str) -> Sequence[Any]:
    return [one for one in state.containers if one.subject.container_id != key]


def joined(states: Sequence[State]) -> State:
    """Return the union of states of one type, in the order of the recordings."""
    union = cast("Callable[[Sequence[Any]], State]", _UNIONS[type(states[0])])
    return union(states)


def _added(states: Sequence[SourceAdded]) -> SourceAdded:
    resolves = dict.fromkeys(name for one in states for name in one.resolves)
    return SourceAdded(min(one.order for one in states), tuple(resolves))


def _devices(states: Sequence[DevicesDiscovered]) -> DevicesDiscovered:
    found: list[Device] = [device for one in states for device in one.devices]
    return DevicesDiscovered(tuple(sorted(found, key=lambda device: device.order)))


def _topology(states: Sequence[TopologyRead]) -> TopologyRead:
    cards = [card for one in states for card in one.cards]
    pairs = [pair for one in states for pair in one.pairs]
    for number, one in enumerate(states):
        for other in states[number + 1 :]:
            pairs += [_between(a, b) for a in one.cards for b in other.cards]
    return TopologyRead(tuple(cards), tuple(pairs))


def _between(a: TopologyCard, b: TopologyCard) -> TopologyPair:
    """Return the connection of cards of two recordings.

    Cards of the same size are on the same NVSwitches, as on a board of one model. Other cards are
    at another socket.
    """
    if a.memory_bytes == b.memory_bytes and a.links and b.links:
        return TopologyPair(a.uuid, b.uuid, Level.NODE, min(a.links, b.links), reachable=True)
    return TopologyPair(a.uuid, b.uuid, Level.SYSTEM, 0, reachable=False)


def _aliases(states: Sequence[DeviceAliasesReplaced]) -> DeviceAliasesReplaced:
    return DeviceAliasesReplaced(
        tuple(alias for one in states for alias in one.aliases),
        tuple(since for one in states for since in one.since),
    )


def _resources(states: Sequence[ResourcesAdvertised]) -> ResourcesAdvertised:
    found: dict[str, list[RawDeviceId]] = {}
    for one in states:
        for resource in one.resources:
            found.setdefault(resource.resource, []).extend(resource.devices)
    return ResourcesAdvertised(
        tuple(AdvertisedResource(name, tuple(ids)) for name, ids in sorted(found.items())),
        min(one.good_for_ns for one in states),
    )


def _pods(states: Sequence[PodsReplaced]) -> PodsReplaced:
    return PodsReplaced(
        tuple(pod for one in states for pod in one.pods), min(one.good_for_ns for one in states)
    )


def _containers(states: Sequence[ContainersReplaced]) -> ContainersReplaced:
    return ContainersReplaced(
        tuple(container for one in states for container in one.containers),
        min(one.good_for_ns for one in states),
    )


def _claims(states: Sequence[ClaimsReplaced]) -> ClaimsReplaced:
    return ClaimsReplaced(
        tuple(claim for one in states for claim in one.claims),
        min(one.good_for_ns for one in states),
        all(one.complete for one in states),
    )


_UNIONS: Final[dict[type[State], Callable[..., State]]] = {
    SourceAdded: _added,
    DevicesDiscovered: _devices,
    TopologyRead: _topology,
    DeviceAliasesReplaced: _aliases,
    ResourcesAdvertised: _resources,
    PodsReplaced: _pods,
    ContainersReplaced: _containers,
    ClaimsReplaced: _claims,
}
