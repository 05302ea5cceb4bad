"""State of each source. Its counts survive a restart of the source."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pipeline.join.device_index import RawIds
from pipeline.model import (
    NS,
    ClaimsReplaced,
    DeviceAliasesReplaced,
    DevicesDiscovered,
    Envelope,
    Instant,
    Resolves,
    ResourcesAdvertised,
    SourceAdded,
    SourceLost,
    SourceState,
    TopologyRead,
)

MAX_UNRESOLVED: Final = 1000
"""How many unresolved ids a source's state lists; all of them are counted."""


_WAITING_NS: Final = 60 * NS
"""How long the join waits for a source that has not reported: with the count of unresolved ids for
a source that may resolve them, and with schedulers' annotations for one that reports the kubelet's
claims."""


class SourceTable:
    """States of the sources, by name.

    Attributes:
        ranking: names of the sources in the order of the configuration, then by name.
        owner_sources: the sources that list jobs, or containers without pods.
        kubelet_sources: the sources that report the kubelet's claims.
    """

    def __init__(self) -> None:
        self._states: dict[str, SourceState] = {}
        self.ranking: list[str] = []
        self.owner_sources: set[str] = set()
        self.kubelet_sources: set[str] = set()
        self._relayed_by: dict[str, str] = {}
        self._reporting_sources: set[str] = set()
        # By source and what it resolves, since when it is waited for.
        self._awaited: dict[tuple[str, Resolves], int] = {}
        self._wait_expired = False
        self._kubelet_complete = False
        # Bounded by the claims that contain these ids, which the join keeps too.
        self._unresolved: dict[str, RawIds] = {}

    def states(self) -> Mapping[str, SourceState]:
        """Return a copy of all states, in the order of the configuration."""
        return {name: self._states[name] for name in self.ranking}

    def record_start(self, envelope: Envelope) -> None:
        """Record that a source starts; a source that starts again keeps its counts."""
        event = envelope.event
        order = event.order if isinstance(event, SourceAdded) else len(self._states)
        known = self._states.get(envelope.source)
        if known is None or known.kind != envelope.kind:
            known = SourceState(envelope.kind, order)
            self._unresolved.pop(envelope.source, None)
            self._reporting_sources.discard(envelope.source)
            if isinstance(event, SourceAdded):
                for kind in event.resolves:
                    if kind != "owners":
                        self._awaited[envelope.source, kind] = envelope.at.mono_ns
        if isinstance(event, SourceAdded):
            for kind, names in (("owners", self.owner_sources), ("claims", self.kubelet_sources)):
                (names.add if kind in event.resolves else names.discard)(envelope.source)
        self._states[envelope.source] = replace(known, order=order)
        self._rank()

    def record_event(self, envelope: Envelope) -> bool:
        """Record an event of a source; return whether this brought the source up."""
        name, relay = envelope.source, envelope.relayed_by
        if name not in self._states:  # a relayed source has no `SourceAdded`
            self.record_start(envelope)
        if relay and relay in self._states:
            self._relayed_by[name] = relay
            self._states[name] = replace(self._states[name], relayed_by=relay)
            self._mark_up(relay, envelope.at)
            self._reporting_sources.add(relay)
        if not isinstance(
            envelope.event, DeviceAliasesReplaced | ResourcesAdvertised | TopologyRead
        ):
            self._reporting_sources.add(name)
        match envelope.event:
            case DevicesDiscovered(devices):
                self._stop_waiting([(name, "devices")])
                self._states[name] = replace(self._states[name], devices=len(devices))
            case ClaimsReplaced():
                self._stop_waiting([(name, "claims")])
            case DeviceAliasesReplaced():
                self._stop_waiting([(name, "names")])
                if self._states[name].down_since is not None:
                    # Names come from a separate list, so they do not show that the source is up.
                    return False
            case _:
                pass
        return self._mark_up(name, envelope.at)

    def _stop_waiting(self, reports: Iterable[tuple[str, Resolves]]) -> bool:
        """Stop waiting for these reports; return whether any of them was waited for.

        If no claims are waited for any more, the kubelet's claims count as complete from now on.
        """
        ended = {
            kind for name, kind in reports if self._awaited.pop((name, kind), None) is not None
        }
        if "claims" in ended and all(kind != "claims" for _, kind in self._awaited):
            self._kubelet_complete = True
        return bool(ended)

    def _awaits(self, now: Instant, *kinds: Resolves) -> bool:
        return any(
            now.mono_ns < ns + _WAITING_NS and kind in kinds
            for (_, kind), ns in self._awaited.items()
        )

    def kubelet_claims_complete(self, now: Instant) -> bool:
        """Whether no source is waited for that reports the kubelet's claims.

        Before that it is unknown which devices are left for a scheduler. The wait ends when each
        such source has reported or was lost, or after `_WAITING_NS`. Sources that are added after
        that are not waited for.
        """
        return self._kubelet_complete or not self._awaits(now, "claims")

    def take_wait_expired(self, now: Instant) -> bool:
        """Return whether a wait for a source has ended without a report since the last call."""
        expired = [key for key, ns in self._awaited.items() if now.mono_ns >= ns + _WAITING_NS]
        has_expired = self._stop_waiting(expired) or self._wait_expired
        self._wait_expired = False
        return has_expired

    def _mark_up(self, name: str, at: Instant) -> bool:
        state = self._states[name]
        self._states[name] = replace(
            state,
            up=True,
            has_reported=True,
            reason="",
            down_since=None,
            events=state.events + 1,
            last_event_at=at,
        )
        return not state.up

    def with_relayed(self, name: str) -> list[str]:
        """Return the names of a source and of all sources that it relayed."""
        return [name, *(relayed for relayed, relay in self._relayed_by.items() if relay == name)]

    def record_loss(self, envelope: Envelope) -> bool:
        """Record that a source is down, and with it the sources that it relays.

        Returns:
            Whether the state of one of them, or its reason, changed.
        """
        event = envelope.event
        if envelope.source not in self._states:
            self.record_start(envelope)
        reason = event.reason if isinstance(event, SourceLost) else ""
        changed = False
        for name in self.with_relayed(envelope.source):
            state = self._states[name]
            self._states[name] = replace(
                state, up=False, has_reported=True, reason=reason, down_since=envelope.at
            )
            self._reporting_sources.add(name)
            self._wait_expired |= self._stop_waiting(
                [key for key in self._awaited if key[0] == name]
            )
            changed = changed or state.up or not state.has_reported or state.reason != reason
        return changed

    def remove(self, name: str) -> None:
        """Remove the state of a source."""
        self._relayed_by.pop(name, None)
        self._unresolved.pop(name, None)
        self._reporting_sources.discard(name)
        self.owner_sources.discard(name)
        self.kubelet_sources.discard(name)
        self._awaited = {key: ns for key, ns in self._awaited.items() if key[0] != name}
        if self._states.pop(name, None) is not None:
            self._rank()

    @property
    def all_reported(self) -> bool:
        """Whether each source has reported, or was lost, since it was added.

        Aliases, advertised resources and topology do not count: they come from separate lists,
        which may arrive before the list of pods or claims.
        """
        return self._reporting_sources.issuperset(self._states)

    def is_up(self, name: str) -> bool:
        """Whether a source is up: it has reported, and was not lost since."""
        state = self._states.get(name)
        return state is not None and state.up

    def record_confirmation(self, name: str, at: Instant) -> None:
        """Record that a source confirmed its claims, pods or containers."""
        self._states[name] = replace(self._states[name], confirmed_at=at)

    def confirmed_at(self, name: str) -> Instant | None:
        """Return when a source last confirmed its claims, pods or containers; None if never."""
        state = self._states.get(name)
        return state.confirmed_at if state is not None else None

    def record_unresolved(self, ids: Mapping[str, RawIds], at: Instant) -> bool:
        """Record the unresolved ids of each source; return whether anything changed.

        While the join waits for a source that may resolve ids, new ids are not counted. An id is
        counted when it appears, not when it is confirmed. The state lists the first
        `MAX_UNRESOLVED` ids, sorted; the tuple stays the same object as long as the ids do.
        """
        changed, is_waiting = False, self._awaits(at, "devices", "names")
        for name, state in self._states.items():
            now, before = ids.get(name, {}), self._unresolved.get(name, {})
            if is_waiting:
                now = {key: raw for key, raw in now.items() if key in before}
            if now.keys() == before.keys():
                continue
            self._unresolved[name] = now
            listed = sorted(now)[:MAX_UNRESOLVED]
            self._states[name] = replace(
                state,
                unresolved=tuple([now[key] for key in listed]),
                unresolved_total=state.unresolved_total + len(now.keys() - before.keys()),
            )
            changed = True
        return changed

    def _rank(self) -> None:
        self.ranking = sorted(self._states, key=lambda name: (self._states[name].order, name))
