"""The task around the join: from the inbox to every sink's outlet."""

import logging
from collections.abc import Callable

from pipeline.channels import Channel
from pipeline.hints import HintBoard
from pipeline.join import Join
from pipeline.model import Envelope, Instant, SamplesTaken, Snapshot

Tap = Callable[[Envelope], None]


class Publisher:
    """Feeds the join and hands its snapshots out.

    Consecutive changes of dimensions merge into one snapshot. `SamplesTaken` is a barrier on both
    sides: what came before is published first, so that no sink that records history binds a reading
    to a holder that came after it.

    Attributes:
        heartbeat: the time of the last envelope that the join took; None before the first.
        latest: the newest snapshot.
    """

    def __init__(self, inbox: Channel[Envelope], hints: HintBoard, log: logging.Logger) -> None:
        self.join = Join()
        self.heartbeat: Instant | None = None
        self.latest: Snapshot | None = None
        self.outlets: dict[str, Channel[Snapshot]] = {}
        self.taps: list[Tap] = []
        self._inbox = inbox
        self._hints = hints
        self._log = log
        self._named: set[tuple[str, str, str]] = set()

    async def run(self) -> None:
        """Work until the inbox is closed and drained."""
        pending = False
        async for envelope in self._inbox:
            barrier = isinstance(envelope.event, SamplesTaken)
            if barrier and pending:
                self._publish(envelope.at)
            for tap in self.taps:
                tap(envelope)
            outcome = self.join.apply(envelope)
            for hint in outcome.hints:
                self._hints.post(hint)
            pending = (pending and not barrier) or outcome.changed
            if pending and (barrier or not len(self._inbox)):
                self._publish(envelope.at)
                pending = False
            self.heartbeat = envelope.at

    def _publish(self, at: Instant) -> None:
        snapshot = self.join.snapshot(at)
        self.latest = snapshot
        self._name_unresolved(snapshot)
        for outlet in self.outlets.values():
            if not outlet.closed:
                outlet.offer(snapshot)

    def _name_unresolved(self, snapshot: Snapshot) -> None:
        for source, state in snapshot.sources.items():
            for raw in state.unresolved:
                key = (source, raw.scheme, raw.text)
                if key not in self._named and len(self._named) < 10_000:
                    self._named.add(key)
                    self._log.warning(
                        "%s names %s %r, which fits no device of this node",
                        source,
                        raw.scheme,
                        raw.text,
                    )
