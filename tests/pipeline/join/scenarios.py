"""Random scenarios: pods start and end on two GPUs, and sources report them at random times.

What really happened is known; the results of the join are compared with that.
"""

import heapq
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

from pipeline.join import Join
from pipeline.model import (
    NS,
    ClaimsReplaced,
    ClockTicked,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    DevicesDiscovered,
    DeviceUsage,
    DeviceUse,
    Envelope,
    Event,
    Instant,
    PartialRef,
    PodDeleted,
    PodsReplaced,
    PodUpserted,
    ProcessesSampled,
    ProcessUse,
    SourceAdded,
    TotalsRestored,
)
from tests.pipeline.join.cluster import GPUS, A, B, checkpoint_claim, kubelet_claim
from tests.pipeline.join.pod_lifetimes import PodLifetime, Polls, pod_of, running_of
from tests.pipeline.usage.samples import adds_up
from tests.support.nodes import at

END = 40.0
GOOD_NS = 300 * NS
ALL = ("kubelet", "checkpoint", "pods", "runtime")
SETS = [
    ("kubelet",),
    ("kubelet", "checkpoint"),
    ("kubelet", "checkpoint"),
    ("kubelet", "checkpoint"),
    ("kubelet", "pods"),
    ("kubelet", "pods"),
    ("kubelet", "runtime"),
    ("checkpoint",),
    ("checkpoint", "runtime"),
    ("checkpoint", "pods"),
    ("kubelet", "checkpoint", "pods"),
    ("kubelet", "checkpoint", "runtime"),
    ALL,
]
"""The sets of sources that a node may have."""

ScheduledReport: TypeAlias = tuple[float, int, str, Callable[[float], Event | None]]


class Scenario:
    """A scenario on one node, with its pods and sources.

    Attributes:
        wrong: results of the join that differ from what happened.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.lives = self._lives()
        self.sources = rng.choice(SETS)
        self.complete = rng.random() < 0.5
        self.follows_hints = rng.random() < 0.6
        self.lag = {source: rng.choice([0.0, 0.0, 0.3, 1.2]) for source in ("pods", "sample")}
        self.restarts = sorted(
            round(rng.uniform(4, 36), 1) for _ in range(rng.choice([0, 1, 1, 2]))
        )
        self.ledger = rng.random() < 0.5
        self.wrong: list[str] = []
        self.join = Join()
        self.now = 0.0
        self._queue: list[ScheduledReport] = []
        self._number = 0
        self._epoch = 0
        self._reported: dict[str, set[str]] = {}
        self._polls: dict[str, Polls] = {}
        self._lists: list[float] = []
        self._sampled_at: float | None = None
        self._serial = 0
        self._busy: dict[str, tuple[str, int]] = {}
        self._samples: list[tuple[float, float, tuple[DeviceUse, ...]]] = []

    def _lives(self) -> list[PodLifetime]:
        """Return pods that follow each other on each device; of one name, one pod at a time."""
        rng, found = self.rng, list[PodLifetime]()
        free = {A: -rng.uniform(0, 20), B: -rng.uniform(0, 20)}
        names = dict.fromkeys("abc", -100.0)
        while min(free.values()) < END:
            device = min(free, key=lambda uuid: free[uuid])
            start = free[device] + rng.choice([0.05, 0.2, 0.6, 1, 3])
            can = [name for name, until in sorted(names.items()) if until + 0.6 < start]
            if not can:
                free[device] = min(names.values()) + 0.7
                continue
            name = rng.choice(can)
            start, end = round(start, 2), round(start + rng.choice([0.4, 2, 5, 9, 15, 25]), 2)
            found.append(
                PodLifetime(name, f"u{len(found)}", device, start, end, rng.choice([0, 0.3, 0.5]))
            )
            names[name] = free[device] = end
        return found

    # -- what each source reports

    def kubelet(self, when: float) -> Event:
        present = [life for life in self.lives if life.lives(when)]
        self._lists.append(when)
        for life in present:
            self._polls.setdefault(life.uid, Polls()).names.append(when)
        claims = tuple(kubelet_claim(life.name, life.device) for life in present)
        return ClaimsReplaced(claims, GOOD_NS, self.complete)

    def checkpoint(self, when: float) -> Event:
        """Return the checkpoint, which the kubelet writes when it allocates a device."""
        written = max((one.start for one in self.lives if one.start <= when), default=-100.0)
        present = [one for one in self.lives if one.lives(written)]
        for life in present:
            if life.lives(when):
                self._polls.setdefault(life.uid, Polls()).uids.append(when)
        return ClaimsReplaced(
            tuple(checkpoint_claim(one.uid, one.device) for one in present), GOOD_NS
        )

    def pods(self, when: float) -> Event:
        seen = when - self.lag["pods"]
        present = [one for one in self.lives if one.start - 0.3 <= seen < one.end + 0.1]
        for life in present:
            self._mark_reported(life)
        return PodsReplaced(tuple(pod_of(one, seen) for one in present), GOOD_NS)

    def runtime(self, when: float) -> Event:
        present = [one for one in self.lives if one.lives(when)]
        for life in present:
            self._mark_reported(life)
        return ContainersReplaced(tuple(running_of(one) for one in present), GOOD_NS)

    def sample(self, when: float) -> Event:
        since, self._sampled_at = self._sampled_at, when
        uses = tuple(self._use(device, since, when) for device in (A, B))
        return ProcessesSampled(uses)

    def _use(self, device: str, since: float | None, when: float) -> DeviceUse:
        processes, total = [], 0
        for number, life in enumerate(self.lives):
            start_s = when if since is None else since
            spent = round(life.overlap(start_s, when) * life.busy * NS)
            present = life.lives(when)
            if life.device != device or not (present or spent):
                continue
            busy = None if since is None else spent
            seen = since is not None and life.lives(since)
            owner = PartialRef(uid=life.uid, container_id=life.container_id)
            processes.append(
                ProcessUse(
                    number,
                    1,
                    owner if present or seen else None,
                    "compute" if present else "",
                    7 if present else 0,
                    busy,
                )
            )
            total += busy or 0
        moment, before = at(when), None if since is None else at(since)
        whole = None if since is None else total
        return DeviceUse(device, moment, before, tuple(processes), 100, 0, whole, 0, 15 * NS)

    def _mark_reported(self, life: PodLifetime) -> None:
        self._reported.setdefault(life.uid, set()).add("both")

    def _reported_since(self, life: PodLifetime) -> float | None:
        """Return since when name and UID of the pod are reported; None if they are not."""
        if life.uid in self._reported:
            return life.start
        if self._name_may_be_older(life):
            return None
        polls = self._polls.get(life.uid, Polls())
        # Only a source of pods may name a UID: one that it does not know yet has no name.
        return polls.uids[0] if polls.match and "pods" not in self.sources else None

    def _name_may_be_older(self, life: PodLifetime) -> bool:
        """Whether no list showed that the name on the device had become another pod's."""
        for one in self.lives:
            if (one.name, one.device) == (life.name, life.device) and one.end <= life.start:
                before = [when for when in self._lists if one.lives(when)]
                if before and not any(max(before) < when < life.start for when in self._lists):
                    return True
        return False

    # -- the sequence of events

    def put(self, when: float, source: str, event: Callable[[float], Event | None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (round(when, 3), self._number, source, event))

    def report_repeatedly(self, source: str, when: float, gaps: list[float]) -> None:
        """Let a source report repeatedly."""
        epoch = self._epoch
        make_report = getattr(self, source)

        def report(now: float) -> Event | None:
            if epoch != self._epoch:
                return None
            self.put(now + self.rng.choice(gaps), source, report)
            event: Event = make_report(now)
            return event

        self.put(when, source, report)

    def start_podgpu(self, when: float) -> None:
        """Start podgpu, or restart it."""
        rng = self.rng
        before = self.join.snapshot(at(when)).usage if self._epoch else None
        self.join = Join(f"run-{self._epoch}")
        self._epoch += 1
        self._queue = [one for one in self._queue if one[2] == "restart"]
        heapq.heapify(self._queue)
        self._reported.clear()
        self._polls.clear()
        self._lists.clear()
        self._sampled_at, self._serial = None, 0
        self._busy.clear()
        self._samples.clear()
        self.now = when
        if before is not None and self.ledger:
            self.apply("", TotalsRestored(tuple(before.devices.values())))
        for order, source in enumerate(("gpus", *self.sources)):
            self.apply(source, SourceAdded(order))
        self.apply("gpus", DevicesDiscovered(tuple(GPUS[:2])))
        for source in self.sources:
            first = when + rng.choice([0.01, 0.1, 0.4, 1.5])
            gaps = {"kubelet": [0.3, 1, 4, 9], "checkpoint": [0.3, 1, 4, 9]}.get(source, [20.0])
            self.report_repeatedly(source, first, gaps)
            if source in {"pods", "runtime"}:
                self._schedule_changes(source, first)
        self._sample_repeatedly(when + rng.choice([0.0, 0.02, 0.5, 2]))
        self.put(when + 1, "clock", self._tick(self._epoch))

    def _tick(self, epoch: int) -> Callable[[float], Event | None]:
        def tick(now: float) -> Event | None:
            if epoch != self._epoch:
                return None
            self.put(now + 1, "clock", tick)
            return ClockTicked()

        return tick

    def _sample_repeatedly(self, when: float) -> None:
        """Take usage samples repeatedly. Each arrives some time after it was taken."""
        epoch = self._epoch

        def take(now: float) -> Event | None:
            if epoch == self._epoch:
                event = self.sample(now)
                self.put(now + self.rng.choice([0, self.lag["sample"]]), "gpus", lambda _now: event)
                self.put(now + self.rng.choice([1.3, 2, 5]), "sampling", take)
            return None

        self.put(when, "sampling", take)

    def _schedule_changes(self, source: str, first: float) -> None:
        """Schedule the changes that a source reports as they happen, after its first list."""
        for life in self.lives:
            for when, event in self._changes_of(source, life):
                if when > first:
                    self.put(when, source, event)

    def _changes_of(
        self, source: str, life: PodLifetime
    ) -> Iterator[tuple[float, Callable[[float], Event | None]]]:
        def known(event: Event) -> Callable[[float], Event]:
            def report(_now: float) -> Event:
                self._mark_reported(life)
                return event

            return report

        if source == "pods":
            lag = self.lag["pods"]
            for when in (life.start - 0.3, life.start + 0.2):
                yield when + lag, known(PodUpserted(pod_of(life, when)))
            yield life.end + 0.1 + lag, lambda _now: PodDeleted(life.uid)
        else:
            yield life.start + 0.05, known(ContainerStarted(running_of(life)))
            yield life.end, lambda _now: ContainerStopped(life.container_id)

    def play(self) -> list[str]:
        """Play the scenario; return what is wrong."""
        for when in self.restarts:
            self.put(when, "restart", lambda _now: None)
        self.start_podgpu(0.0)
        while self._queue:
            when, _, source, event = heapq.heappop(self._queue)
            if when > END:
                break
            self.now = when
            if source == "restart":
                self.start_podgpu(when)
                continue
            reported = event(when)
            if reported is not None:
                self.apply(source, reported)
        return self.wrong

    def apply(self, source: str, event: Event) -> None:
        outcome = self.join.apply(Envelope(source, source, 1, at(self.now), event))
        if self.follows_hints:
            for hint in outcome.hints:
                for requested in {"kubelet", "checkpoint"} & set(self.sources):
                    if hint.pods or hint.sources - {requested}:
                        self._request_report(requested)
        self.check(event)

    def _request_report(self, source: str) -> None:
        epoch, make_report = self._epoch, getattr(self, source)
        self.put(
            self.now + 0.03, source, lambda now: make_report(now) if epoch == self._epoch else None
        )

    # -- checks

    def check(self, event: Event) -> None:
        snapshot = self.join.snapshot(at(self.now))
        real = {(life.name, life.uid) for life in self.lives}
        for known in snapshot.layout.attributions.values():
            for holder in known.holders:
                self._check_pair(holder.subject, real, "holds")
        usage = snapshot.usage
        if usage is None:
            return
        for account in usage.devices.values():
            adds_up(account)
            for one in account.containers:
                self._check_pair(one.subject, real, "is accounted")
        for holding in usage.ended_after(self._serial):
            self._check_pair(holding.subject, real, "has held")
            if holding.end is not None:
                self._check_incomplete_name(
                    holding.device, holding.subject, holding.start, holding.end
                )
        self._serial = max([self._serial, *(one.serial for one in usage.ended)])
        if isinstance(event, ProcessesSampled):
            for use in event.uses:
                if (counted := usage.devices.get(use.device)) is not None and counted.at == use.at:
                    self._check_busy_time(counted, use)

    def _check_pair(self, subject: PartialRef, real: set[tuple[str, str]], what: str) -> None:
        if subject.pod and subject.uid and (subject.pod, subject.uid) not in real:
            self._record(f"{subject.pod} with {subject.uid} {what}")

    def _check_busy_time(self, account: DeviceUsage, use: DeviceUse) -> None:
        before = self._busy.get(use.device)
        busy = account.busy_ns or 0
        same = before is not None and before[0] == account.id
        grown = busy - before[1] if before is not None else 0
        if same and use.busy_ns is not None and grown != use.busy_ns:
            self._record(f"{use.device[:8]} was busy for {grown}, not {use.busy_ns}")
        self._busy[use.device] = (account.id, busy)
        for one in account.containers:
            if one.holding is not None:
                self._check_incomplete_name(use.device, one.subject, one.holding.start, use.at)

    def _check_incomplete_name(
        self, device: str, subject: PartialRef, start: Instant, end: Instant
    ) -> None:
        """Record a container without name or UID, although both were reported."""
        if (subject.uid and subject.pod) or not {"kubelet", "pods", "runtime"} & {*self.sources}:
            return
        start_s, until = ((one.mono_ns - at(0).mono_ns) / NS for one in (start, end))
        for life in self.lives:
            its = subject.uid == life.uid if subject.uid else subject.pod == life.name
            if not its or life.device != device or life.start > start_s + 1e-6:
                continue
            reported = self._reported_since(life)
            if reported is not None and life.overlap(max(start_s, reported), until) > 1e-6:
                self._record(f"{life.name} with {life.uid} is accounted as {subject}")

    def _record(self, text: str) -> None:
        self.wrong.append(f"{self.now}: {text}")
