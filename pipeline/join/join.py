"""The join itself: routes events to the tables and makes snapshots of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.join.identity import DeviceIndex
from pipeline.join.inventory import Inventory
from pipeline.join.readings import Key, ReadingTable
from pipeline.join.resolution import Holding, resolve
from pipeline.join.sources import SourceTable
from pipeline.model import (
    Attribution,
    Claim,
    ClaimsReplaced,
    ClockTicked,
    DevicesDiscovered,
    Envelope,
    Holder,
    HolderChanged,
    Instant,
    Layout,
    PartialRef,
    SamplesTaken,
    Series,
    Snapshot,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    SourceState,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one event did.

    Attributes:
        changed: the next snapshot will differ from the last one.
        hints: for those sources that asked for hints.
    """

    changed: bool
    hints: tuple[HolderChanged, ...] = ()


class Join:
    """Joins readings with the containers that hold the devices.

    Not thread-safe and never blocking. `apply` must see envelopes in the order of the inbox: a
    claim emitted before a reading is joined before it.
    """

    def __init__(self) -> None:
        self._sources = SourceTable()
        self._inventory = Inventory()
        self._readings = ReadingTable()
        self._claims: dict[str, ClaimsReplaced] = {}
        self._devices = DeviceIndex(())
        self._attributions: dict[str, Attribution] = {}
        self._since: dict[tuple[str, PartialRef], Instant] = {}
        self._keys: list[Key] = []
        self._series: dict[Key, Series] = {}
        self._layout = Layout((), {})

    def apply(self, envelope: Envelope) -> Outcome:
        """Take in one event, and let time go on to its moment."""
        expired = self._pass_time(envelope.at)
        outcome = self._dispatch(envelope)
        if not expired.changed:
            return outcome
        return Outcome(changed=True, hints=expired.hints + outcome.hints)

    def _dispatch(self, envelope: Envelope) -> Outcome:
        source, at = envelope.source, envelope.at
        match envelope.event:
            case SamplesTaken(readings, processes):
                self._sources.heard(envelope)
                self._readings.take(source, readings)
                self._readings.take_processes(source, processes)
                return Outcome(changed=True)
            case ClaimsReplaced() as said:
                woke = self._sources.heard(envelope)
                self._sources.confirmed(source, at)
                before = self._claims.get(source)
                self._claims[source] = said
                if before is not None and before.claims == said.claims:
                    return Outcome(changed=woke)
                return self._attribute(at)
            case DevicesDiscovered(devices):
                woke = self._sources.heard(envelope)
                self._sources.counted(source, len(devices))
                if not self._inventory.replace(source, devices):
                    return Outcome(changed=woke)
                return self._enumerate(at)
            case ClockTicked():
                return Outcome(changed=False)
            case SourceAdded():
                self._sources.added(envelope)
                return self._enumerate(at)
            case SourceLost():
                return Outcome(changed=self._sources.lost(envelope))
            case SourceRemoved():
                for name in self._sources.with_relayed(source):
                    self._sources.removed(name)
                    self._claims.pop(name, None)
                    self._readings.remove(name)
                    self._inventory.remove(name)
                return self._enumerate(at)

    def _pass_time(self, now: Instant) -> Outcome:
        """Let go of what is no longer good. Every event brings the time along."""
        expired = self._readings.expire(now.mono_ns)
        if not self._expire_claims(now):
            return Outcome(changed=expired)
        outcome = self._attribute(now)
        return Outcome(changed=True, hints=outcome.hints)

    def _expire_claims(self, now: Instant) -> bool:
        """Withdraw the claims of sources that have been silent for too long."""
        expired = [
            source
            for source, said in self._claims.items()
            if (confirmed := self._sources.confirmed_at(source)) is not None
            and confirmed.mono_ns + said.good_for_ns < now.mono_ns
        ]
        for source in expired:
            del self._claims[source]
        return bool(expired)

    def _enumerate(self, at: Instant) -> Outcome:
        """Work out the devices anew, then who holds them."""
        self._readings.reshaped = True
        ranking = self._sources.ranking()
        known = self._inventory.devices(ranking)
        self._devices = DeviceIndex(device for device, _ in known)
        self._attributions = {
            device.uuid: self._interned(Attribution(device, present, holders))
            for device, present in known
            for holders in [self._holders_of(device.uuid)]
        }
        outcome = self._attribute(at)
        return Outcome(changed=True, hints=outcome.hints)

    def _attribute(self, at: Instant) -> Outcome:
        """Resolve all claims anew; keep the object of every attribution that didn't change."""
        claims: Mapping[str, tuple[Claim, ...]] = {
            source: self._claims[source].claims
            for source in self._sources.ranking()
            if source in self._claims
        }
        resolution = resolve(claims, self._devices)
        # Before the first enumeration every id would look wrong.
        unresolved = resolution.unresolved if self._inventory.declared else {}
        changed = self._sources.unresolved(unresolved)
        since: dict[tuple[str, PartialRef], Instant] = {}
        moved: set[str] = set()
        for uuid, known in self._attributions.items():
            holders: list[Holder] = []
            for holding in resolution.holdings.get(uuid, ()):
                began = self._began(uuid, holding, at)
                since[uuid, holding.subject] = began
                holders.append(
                    Holder(holding.subject, holding.share, began, holding.source, holding.evidence)
                )
            attribution = self._interned(replace(known, holders=tuple(holders)))
            if attribution is not known:
                self._attributions[uuid] = attribution
                moved.add(uuid)
        self._since = since
        hints = (HolderChanged(frozenset(moved)),) if moved else ()
        return Outcome(changed=changed or bool(moved), hints=hints)

    def _began(self, uuid: str, holding: Holding, at: Instant) -> Instant:
        if holding.since is not None:
            return holding.since
        return self._since.get((uuid, holding.subject), at)

    def _holders_of(self, uuid: str) -> tuple[Holder, ...]:
        known = self._attributions.get(uuid)
        return known.holders if known is not None else ()

    def _interned(self, attribution: Attribution) -> Attribution:
        known = self._attributions.get(attribution.device.uuid)
        return known if known == attribution else attribution

    def sources(self) -> Mapping[str, SourceState]:
        """Return what is known of each source at this moment, snapshot or not."""
        return self._sources.states()

    def snapshot(self, at: Instant) -> Snapshot:
        """Return everything that is known; the readings taken since the last call are fresh."""
        self._lay_out()
        table = self._readings
        fresh = table.fresh
        snapshot = Snapshot(
            at=at,
            layout=self._layout,
            readings=tuple([table[key] for key in self._keys]),
            fresh=tuple([at for at, key in enumerate(self._keys) if key in fresh]) if fresh else (),
            processes={
                device: found.processes
                for device, found in table.processes(self._sources.ranking()).items()
            },
            sources=self._sources.states(),
        )
        fresh.clear()
        return snapshot

    def _lay_out(self) -> None:
        """Make a new layout if series or their owners changed; unchanged series stay the same."""
        reshaped = self._readings.reshaped
        if reshaped:
            devices = {uuid: known.device for uuid, known in self._attributions.items()}
            self._keys = self._readings.keys(devices, self._sources.ranking())
        elif self._layout.attributions == self._attributions:
            return
        series: dict[Key, Series] = {}
        for key in self._keys:
            attribution = self._attributions[key.device]
            known = self._series.get(key)
            if known is None or known.attribution is not attribution:
                known = Series(key.field, key.attrs, attribution)
            series[key] = known
        self._series = series
        self._layout = Layout(tuple(series.values()), dict(self._attributions))
