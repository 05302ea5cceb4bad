"""The task that feeds the join: takes events from the inbox and passes snapshots to all sinks."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from secrets import token_hex
from typing import Final

from pipeline.base.channels import Channel
from pipeline.base.hint_board import HintBoard
from pipeline.base.safe_text import line
from pipeline.component.accepted_annotations import AcceptedAnnotations, by_minor, pod_of
from pipeline.join import Join, Outcome
from pipeline.model import (
    Envelope,
    Instant,
    ProcessesSampled,
    RawDeviceId,
    SamplesTaken,
    Snapshot,
    SourceState,
    XidsReported,
)

Tap = Callable[[Envelope], None]

_BATCH: Final = 128
"""Maximum number of queued events that are combined into one snapshot."""

_MAX_LISTED: Final = 10
"""Maximum number of unresolved ids, or of GPU pairs, that are logged one by one at a time."""

_REMEMBERED: Final = 10_000
"""Maximum number of subjects for each kind of message that are kept, so that each subject is logged
only once. Further subjects are not logged."""

_FIXES: Final[Mapping[str, str]] = {
    "dra": "; what a name of a DRA driver means is known from a source of kind pods with "
    "resource_slices (podgpu dcgm-exporter: --kubernetes-enable-dra)",
}
"""What to do about an unresolved id, by its scheme."""

_OVERRULED: Final = (
    "device %s: %s also claims it, but %s holds it; the holder's evidence is stronger, or the "
    "holder started later; see podgpu_attribution_conflicts"
)
_UNDECIDED: Final = (
    "device %s: the claim of %s contradicts that of another owner, and no evidence decides; "
    "podgpu shows as holders: %s; see podgpu_attribution_conflicts"
)


class Publisher:
    """Feeds the join, and passes its snapshots to the sinks.

    It combines consecutive changes of claims, pods and devices into one snapshot. It publishes the
    changes before a `SamplesTaken` separately, so that a sink that records history does not assign
    a reading to a later holder. It publishes a `ProcessesSampled` together with the changes before
    it, but without later ones, so that the end of a pod does not hide the pod's last usage.
    Snapshots contain ended holdings and XID errors for minutes, so that no sink misses one.

    Attributes:
        heartbeat: the time of the last envelope that the join processed; None before the first.
        latest: the newest snapshot; None before the first.
        accepted: accepted annotations and the GPUs that a scheduler may allocate, for sources.
        outlets: the queue of snapshots of each sink, by name.
        taps: called with each envelope before the join gets it.
    """

    def __init__(self, inbox: Channel[Envelope], hints: HintBoard, log: logging.Logger) -> None:
        self.join = Join(run=token_hex(8))
        self.accepted = AcceptedAnnotations()
        self.heartbeat: Instant | None = None
        self.latest: Snapshot | None = None
        self.outlets: dict[str, Channel[Snapshot]] = {}
        self.taps: list[Tap] = []
        self._inbox = inbox
        self._hints = hints
        self._log = log
        self._unresolved: dict[str, SourceState] = {}
        self._logged: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)

    async def run(self) -> None:
        """Process events until the inbox is closed and empty."""
        pending, taken = False, 0
        async for envelope in self._inbox:
            barrier = isinstance(envelope.event, SamplesTaken)
            if barrier and (pending or self.join.has_pending_changes):
                settled = self._apply_outcome(self.join.resolve_pending(envelope.at))
                if pending or settled:
                    self._publish(envelope.at)
                pending = False
            for tap in self.taps:
                tap(envelope)
            taken += 1
            separate = barrier or isinstance(envelope.event, ProcessesSampled)
            more = bool(len(self._inbox)) and not separate and taken < _BATCH
            changed = self._apply_outcome(self.join.apply(envelope, more_pending=more))
            if isinstance(envelope.event, XidsReported):
                self._log_unknown_devices(envelope.source)
            pending = pending or changed
            if pending and not more:
                self._publish(envelope.at)
                pending = False
            self.heartbeat = envelope.at
            if not more:
                taken = 0
                # Taking a queued event does not yield, and other tasks need the loop too.
                await asyncio.sleep(0)

    def _apply_outcome(self, outcome: Outcome) -> bool:
        for hint in outcome.hints:
            self._hints.post(hint)
        return outcome.changed

    def _publish(self, at: Instant) -> None:
        snapshot, before = self.join.snapshot(at), self.latest
        if snapshot.topology is not (before.topology if before is not None else None):
            self._log_contradictions(snapshot)
        self.latest = snapshot
        self._log_new_unresolved(snapshot)
        if before is None or snapshot.layout is not before.layout:
            self._log_conflicts(snapshot)
        self.accepted.gpus = (
            by_minor(snapshot.layout.attributions.values(), self.join.plugin_managed)
            if self.join.all_reported
            else None
        )
        for outlet in self.outlets.values():
            if not outlet.closed:
                outlet.offer(snapshot)

    def _log_new_unresolved(self, snapshot: Snapshot) -> None:
        """Log each unresolved id at the first snapshot that contains it."""
        before = self._unresolved
        # The join keeps the same tuple while it does not change.
        for source, state in snapshot.sources.items():
            known = before.get(source)
            if state.unresolved is not (known.unresolved if known is not None else ()):
                counted = known.unresolved_total if known is not None else 0
                self._log_unresolved(source, state.unresolved, state.unresolved_total - counted)
        self._unresolved = dict(snapshot.sources)

    def _log_unresolved(self, source: str, ids: tuple[RawDeviceId, ...], turned_up: int) -> None:
        new = self._unlogged("ids", ((source, raw.scheme, raw.text) for raw in ids))
        if not new:
            return
        for _, scheme, text in new[:_MAX_LISTED]:
            self._log.warning(
                "source %s reports device id %r (kind of id: %s), which matches no device of this "
                "node%s",
                source,
                text,
                scheme,
                _FIXES.get(scheme, ""),
            )
        # The state lists only some of many ids; the total counts all of them.
        count = turned_up if turned_up > len(ids) else len(new)
        if count > _MAX_LISTED:
            self._log.warning(
                "source %s reports %d more device ids that match no device of this node",
                source,
                count - _MAX_LISTED,
            )
        if len(self._logged["ids"]) >= _REMEMBERED:
            self._log.warning(
                "further unresolved device ids are not logged; "
                "podgpu_unresolved_device_ids_total counts them"
            )

    def _log_conflicts(self, snapshot: Snapshot) -> None:
        """Log conflicting claims and access: each pod or container once per device."""
        for uuid, known in snapshot.layout.attributions.items():
            if not (known.conflicting_pods or known.access):
                continue
            holders = {pod_of(holder) for holder in known.holders}
            shown = line(", ".join(sorted(holders))) or "no owner"
            for pod in known.conflicting_pods:
                text = _UNDECIDED if pod in holders else _OVERRULED
                called = pod if pod.startswith(("job ", "container ")) else f"pod {pod}"
                self._log_once(("conflict", uuid, pod), text, uuid, line(called), shown)
            for ref in (one.subject for one in known.access):
                self._log_once(
                    ("access", uuid, f"{ref.namespace}/{ref.pod}/{ref.container}"),
                    "device %s: container %s has access to it (environment variable, mount or "
                    "adminAccess) but does not hold it; podgpu counts its usage of the device; "
                    "see podgpu_device_access_info",
                    uuid,
                    line(f"{ref.namespace}/{ref.pod or ref.uid}/{ref.container}"),
                )

    def _log_once(self, key: tuple[str, str, str], text: str, *values: str) -> None:
        if self._unlogged("once", (key,)):
            self._log.warning(text, *values)

    def _unlogged(self, kind: str, keys: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Return the keys that were not logged yet, as many as can be remembered."""
        logged = self._logged[kind]
        new = [key for key in keys if key not in logged][: max(_REMEMBERED - len(logged), 0)]
        logged.update(new)
        return new

    def _log_unknown_devices(self, source: str) -> None:
        """Log each unknown device with an XID error once."""
        devices = ((device_id,) for device_id in self.join.unknown_xid_devices)
        for (device_id,) in self._unlogged("xids", devices):
            self._log.warning(
                "source %s reports an XID error on %r, which matches no device of this node; "
                "podgpu does not attribute XID errors of this device to containers",
                source,
                device_id,
            )

    def _log_contradictions(self, snapshot: Snapshot) -> None:
        """Log each pair of GPUs with contradictory topology levels once."""
        found = snapshot.topology.contradictions if snapshot.topology is not None else {}
        new = self._unlogged("pairs", found)
        for pair in new[:_MAX_LISTED]:
            self._log.warning(
                "the topology levels of the driver contradict each other; podgpu uses the second "
                "one: %s",
                found[pair],
            )
        if len(new) > _MAX_LISTED:
            self._log.warning(
                "%d more pairs of GPUs have contradictory topology levels; "
                "see podgpu_topology_contradictions",
                len(new) - _MAX_LISTED,
            )
