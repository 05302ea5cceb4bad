"""The task around the join: from the inbox to every sink's outlet."""

import asyncio
import logging
from collections.abc import Callable
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
"""How many events that wait together are worked out at once, and shown as one snapshot."""

_MAX_LISTED: Final = 10
"""How many ids that fit no device are told one by one when a source's claims change."""

_REMEMBERED: Final = 10_000
"""How many of them, and of contradictory pairs of GPUs, are kept in mind: none is told twice."""


class Publisher:
    """Feeds the join and hands its snapshots out.

    Consecutive changes of dimensions merge into one snapshot. `SamplesTaken` is a barrier on both
    sides: what came before is published first, so that no sink that records history binds a reading
    to a holder that came after it. `ProcessesSampled` is published with what came before it, and
    before what comes after: what is told of a pod's use is never passed over by its end. Holdings
    that ended and XID errors stand in snapshots for minutes, so that no sink misses one by that.

    Attributes:
        heartbeat: the time of the last envelope that the join took; None before the first.
        latest: the newest snapshot.
        accepted: which annotations count, and which GPUs are a scheduler's, for sources.
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
        self._named: set[tuple[str, str, str]] = set()
        self._contradictory: set[tuple[str, str]] = set()
        self._logged_once: set[tuple[str, str, str]] = set()
        self._unplaced = 0

    async def run(self) -> None:
        """Work until the inbox is closed and drained."""
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
            own = barrier or isinstance(envelope.event, ProcessesSampled)
            more = bool(len(self._inbox)) and not own and taken < _BATCH
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
                # What waits in the inbox is taken without a pause: others want the loop too.
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
        """Tell of ids that fit no device, each once, at the snapshot that first has them."""
        before = self._unresolved
        # The join keeps the tuple while nothing about it changes.
        for source, state in snapshot.sources.items():
            known = before.get(source)
            if state.unresolved is not (known.unresolved if known is not None else ()):
                counted = known.unresolved_total if known is not None else 0
                self._log_unresolved(source, state.unresolved, state.unresolved_total - counted)
        self._unresolved = dict(snapshot.sources)

    def _log_unresolved(self, source: str, ids: tuple[RawDeviceId, ...], turned_up: int) -> None:
        room = _REMEMBERED - len(self._named)
        keys = ((source, raw.scheme, raw.text) for raw in ids)
        new = [key for key in keys if key not in self._named][: max(room, 0)]
        if not new:
            return
        self._named.update(new)
        for _, scheme, text in new[:_MAX_LISTED]:
            self._log.warning(
                "%s names %s %r, which fits no device of this node", source, scheme, text
            )
        # The state doesn't name them all: where more turned up than it names, they count as well.
        count = turned_up if turned_up > len(ids) else len(new)
        if count > _MAX_LISTED:
            self._log.warning(
                "%s names %d more ids that fit no device of this node", source, count - _MAX_LISTED
            )
        if len(self._named) >= _REMEMBERED:
            self._log.warning(
                "more ids that fit no device are counted (podgpu_unresolved_device_ids_total), "
                "and no longer named"
            )

    def _log_conflicts(self, snapshot: Snapshot) -> None:
        """Tell of pods that contradict one another, and of access without a holding, each once."""
        for uuid, known in snapshot.layout.attributions.items():
            if not (known.conflicting_pods or known.access):
                continue
            holders = ", ".join(sorted({pod_of(holder) for holder in known.holders}))
            for pod in known.conflicting_pods:
                self._log_once(
                    ("conflict", uuid, pod),
                    "device %s: pod %s claims it against %s, which holds it by stronger evidence; "
                    "see podgpu_attribution_conflicts",
                    uuid,
                    line(pod),
                    line(holders) or "nobody",
                )
            for ref in (one.subject for one in known.access):
                self._log_once(
                    ("access", uuid, f"{ref.namespace}/{ref.pod}/{ref.container}"),
                    "device %s: container %s has access to it by a variable, a mount or a claim "
                    "with adminAccess, and is no holder; what it uses is counted as its own; see "
                    "podgpu_device_access_info",
                    uuid,
                    line(f"{ref.namespace}/{ref.pod or ref.uid}/{ref.container}"),
                )

    def _log_once(self, key: tuple[str, str, str], text: str, *values: str) -> None:
        if key not in self._logged_once and len(self._logged_once) < _REMEMBERED:
            self._logged_once.add(key)
            self._log.warning(text, *values)

    def _log_unknown_devices(self, source: str) -> None:
        """Tell of XID errors of devices that nobody knows, each device once."""
        found = self.join.unknown_xid_devices
        for written in list(found)[self._unplaced :]:
            self._log.warning(
                "%s tells of an XID error on %r, which is no device of this node that a source "
                "shows; errors there are counted for no container",
                source,
                written,
            )
        self._unplaced = len(found)

    def _log_contradictions(self, snapshot: Snapshot) -> None:
        """Tell of pairs of GPUs that are told to be joined as they can't be, each pair once."""
        found = snapshot.topology.contradictions if snapshot.topology is not None else ()
        new = [pair for pair in found if (pair.a, pair.b) not in self._contradictory]
        new = new[: max(_REMEMBERED - len(self._contradictory), 0)]
        self._contradictory.update((pair.a, pair.b) for pair in new)
        for pair in new[:_MAX_LISTED]:
            self._log.warning("the driver's answers contradict each other: %s", pair.text)
        if len(new) > _MAX_LISTED:
            self._log.warning(
                "%d more pairs of GPUs contradict others (podgpu_topology_contradictions)",
                len(new) - _MAX_LISTED,
            )
