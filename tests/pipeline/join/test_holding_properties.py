"""Properties of holdings that hold for any events, also over restarts of podgpu."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.join import Join
from pipeline.model import (
    ClockTicked,
    ContainerUsage,
    DeviceUsage,
    Envelope,
    Holding,
    Instant,
    PartialRef,
    PodInfo,
    TotalsRestored,
    Usage,
    XidError,
)
from pipeline.recording import shifted
from pipeline.usage import renames
from pipeline.usage.container_account import ContainerAccount
from pipeline.usage.container_accounts import MAX_CONTAINERS, ContainerAccounts
from pipeline.usage.holding import HoldingAccount
from pipeline.usage.interval_samples import ContainerName
from pipeline.usage.renames import merge_containers
from tests.pipeline.join.test_usage_properties import (
    EXAMPLES,
    HISTORIES,
    Author,
    assert_grown,
    of_container,
    of_device,
)
from tests.pipeline.usage.samples import S, adds_up

Key: TypeAlias = tuple[str, str]
Amounts: TypeAlias = tuple[int, int, int]
"""Held time, busy time and energy."""

_finalize = ContainerAccounts._finalize


def amounts(one: Holding | ContainerUsage | None) -> Amounts:
    if one is None:
        return (0, 0, 0)
    return (one.held_ns, one.busy_ns or 0, one.energy_mj or 0)


def plus(*parts: Amounts) -> Amounts:
    held, busy, energy = zip(*parts, strict=True)
    return sum(held), sum(busy), sum(energy)


def key_of(one: Holding) -> Key:
    return one.device, one.id


class Run:
    """A run of podgpu, and the checks of everything that it shows.

    Attributes:
        owners: by ended holding, the id of the account of its container.
        base: by account, the part of its amounts that is in no holding of this run.
    """

    def __init__(self, number: int = 0) -> None:
        # Ids start with the run, so that they differ between runs.
        self.join = Join(f"run{number}")
        self.shown: Usage | None = None
        self.ended: list[Holding] = []
        self.started: set[Key] = set()
        self.absorbed: set[Key] = set()
        self.owners: dict[Key, str] = {}
        self.devices: dict[tuple[str, Instant], DeviceUsage] = {}
        self.base: dict[Key, Amounts] = {}
        self.continued: dict[str, Instant] = {}
        self.errors: dict[int, XidError] = {}
        self.counts: dict[Key, tuple[tuple[int, int], ...]] = {}

    def rename(
        self,
        roster: ContainerAccounts,
        before: ContainerName,
        name: ContainerName,
        pod: PodInfo | None,
    ) -> dict[HoldingAccount, HoldingAccount]:
        """Merge accounts of one container when it is identified, with the real function."""
        accounts = self.join._usage.accounts._accounts
        [device] = [uuid for uuid, one in accounts.items() if one.containers is roster]
        known, entry = roster.get(before), roster.get(name)
        assert known is not None
        if entry is not None:
            rest = [self.base.pop((device, one.id), None) for one in (known, entry)]
            if any(rest):
                self.base[device, entry.id] = plus((0, 0, 0), *(part for part in rest if part))
        return merge_containers(roster, before, name, pod)

    def apply(self, envelope: Envelope) -> None:
        def finalize(
            roster: ContainerAccounts, entry: ContainerAccount, one: HoldingAccount, now_ns: int
        ) -> None:
            self.owners[roster._device, one.id] = entry.id
            _finalize(roster, entry, one, now_ns)

        # For each event, and `patch` takes long.
        renames.merge_containers = self.rename  # type: ignore[assignment]
        ContainerAccounts._finalize = finalize  # type: ignore[assignment, method-assign]
        try:
            self.join.apply(envelope)
        finally:
            renames.merge_containers = merge_containers
            ContainerAccounts._finalize = _finalize  # type: ignore[method-assign]
        snapshot = self.join.snapshot(envelope.at)
        self.take_errors(snapshot.xids)
        usage = snapshot.usage
        if usage is None or usage is self.shown:
            return
        self.shown = usage
        assert not usage.ended_evicted
        self.take_ended(usage)
        for device, account in usage.devices.items():
            adds_up(account)
            self.count_errors(account)
            before = self.devices.get((device, account.start))
            assert_grown(of_device(before) if before else [], of_device(account))
            self.devices[device, account.start] = account
            present = {(device, one.id) for one in account.containers}
            for forgotten in [key for key in self.base if key[0] == device and key not in present]:
                del self.base[forgotten]
            for one in account.containers:
                self.absorbed.update((device, each) for each in one.absorbed)
                self.check(account, one, envelope.at)

    def take_errors(self, errors: tuple[XidError, ...]) -> None:
        new = [one for one in errors if one.serial not in self.errors]
        last = max(self.errors, default=0)
        assert [one.serial for one in new] == list(range(last + 1, last + 1 + len(new)))
        for one in errors:
            struck = [(victim.subject, victim.device) for victim in one.victims]
            assert struck == sorted(set(struck))
            before = self.errors.get(one.serial, one)
            assert one == before or one.revision > before.revision
            self.errors[one.serial] = one

    def count_errors(self, account: DeviceUsage) -> None:
        """No count falls, and a holding has at most the errors of its container."""
        device = account.device
        counts_before = {key: counts for key, counts in self.counts.items() if key[0] == device}
        for key in counts_before:
            del self.counts[key]
        for one in account.containers:
            key, counts = (device, one.id), Counter(dict(one.xids))
            before = Counter[int]()
            for each in (one.id, *one.absorbed):
                before.update(dict(counts_before.get((device, each), ())))
            assert before <= counts
            if one.holding:
                assert Counter(dict(one.holding.xids)) <= counts
            self.counts[key] = one.xids

    def take_ended(self, usage: Usage) -> None:
        last = self.ended[-1].serial if self.ended else 0
        new = usage.ended_after(last)
        assert [one.serial for one in new] == list(range(last + 1, last + 1 + len(new)))
        for one in new:
            assert one.end is not None
            check_times(one, one.end)
        self.ended += new

    def check(self, account: DeviceUsage, one: ContainerUsage, now: Instant) -> None:
        holding, key = one.holding, (account.device, one.id)
        assert (holding is None) == (one.ended is not None)
        if holding is not None:
            check_times(holding, account.at)
            if holding.counted_ns:
                # A holding that ended when it started is not reported.
                self.started.add(key_of(holding))
        waiting = self.waiting(account.device, one.subject)
        ids = {one.id, *one.absorbed}
        ended = [amounts(each) for each in self.ended if self.owners.get(key_of(each)) in ids]
        everything = plus(*ended, *waiting, self.base.get(key, (0, 0, 0)), (0, 0, 0))
        assert everything == amounts(one)

    def waiting(self, device: str, subject: PartialRef) -> list[Amounts]:
        """Return the amounts of the holdings that are not reported yet."""
        account = self.join._usage.accounts._accounts[device]
        name = (subject.namespace, subject.pod, subject.container, subject.uid)
        entry = account.containers.get(name)
        assert entry is not None
        return [(h.held_ns, h.busy_ns or 0, h.energy_mj or 0) for h in entry.open_holdings()]

    def finish(self, author: Author) -> None:
        """Check that each holding that started and has ended was reported once."""
        for _ in range(2):
            # First the claims expire, then the time for which ended holdings wait.
            author.now = round(author.now + 1001)
            self.apply(author.envelope("", ClockTicked()))
        times = Counter(key_of(one) for one in self.ended)
        assert set(times.values()) <= {1}
        devices = self.shown.devices.values() if self.shown is not None else ()
        continuing = {key_of(c.holding) for a in devices for c in a.containers if c.holding}
        hidden = {key for key in self.started if key[0] not in {a.device for a in devices}}
        assert self.started - continuing - hidden - self.absorbed <= times.keys()
        assert not times.keys() & continuing


def check_times(one: Holding, until: Instant) -> None:
    """Check that counted time and gaps add up exactly to the length of the holding."""
    whole_ns = max(until.mono_ns - one.start.mono_ns, 0)
    assert one.counted_ns + one.gap_ns == whole_ns, one
    parts = (one.counted_ns, one.gap_ns, one.memory_ns, one.busy_time_ns, one.held_ns)
    assert min(parts) >= 0
    assert max(one.memory_ns, one.busy_time_ns, one.held_ns) <= one.counted_ns, one
    mean, peak = one.memory_mean_bytes, one.memory_peak_bytes
    assert mean is None or (peak is not None and mean <= peak)
    assert one.busy_peak_ppm is None or 0 <= one.busy_peak_ppm <= 1_000_000


ROOM = st.sampled_from([2, 3, MAX_CONTAINERS, MAX_CONTAINERS])
"""How many containers of a device have accounts."""


@pytest.mark.slow
@given(HISTORIES, ROOM)
@example((3168, 15), 2)  # one sample reported memory of two containers that are one
@example((1361415, 18), MAX_CONTAINERS)  # one is named while another of its pod starts
@EXAMPLES
def test_holdings_add_up_and_each_is_reported_once(history: tuple[int, int], room: int) -> None:
    author, run = Author(history[0]), Run()
    with patch("pipeline.usage.container_accounts.MAX_CONTAINERS", room):
        for envelope in author.history(history[1]):
            run.apply(envelope)
        run.finish(author)


PARTS = st.lists(
    st.tuples(st.integers(0, 25), st.integers(0, 5), st.sampled_from([0, 0, 1, 60, 500])),
    min_size=1,
    max_size=4,
)
"""Of each run: the number of events, how many of the last are lost, how long podgpu is down."""


@pytest.mark.slow
@given(st.integers(0, 1 << 40), PARTS, st.sampled_from([0, 0, 0, 3, -20, -4000]))
@example(65537, [(13, 0, 0), (11, 3, 0), (10, 4, 0), (10, 0, 0)], 0)  # two unseen ones are one
@example(269318, [(20, 2, 0), (1, 5, 0)], -4000)  # a holding that is not reported yet
@EXAMPLES
def test_holdings_add_up_over_restarts(
    seed: int, parts: list[tuple[int, int, int]], back: int
) -> None:
    author, state = Author(seed), Usage({})
    for count, (events, lost, down) in enumerate(parts):
        run = Run(count)
        restart(run, author, state, back)
        written = run.shown
        envelopes = [*author.initial_events(), *author.more_events(events)]
        for number, envelope in enumerate(envelopes):
            run.apply(envelope)
            if number < len(envelopes) - lost:
                written = run.shown
        run.finish(author)
        check_restart(state, run)
        state = written or state
        author.now = round(author.now + down, 2)


def restart(run: Run, author: Author, state: Usage, back: int) -> None:
    """Start a run from the state that the previous run has written.

    Args:
        run: the new run.
        author: makes the events.
        state: what was written.
        back: by how many seconds the wall clock was set forward meanwhile.
    """
    restored = shifted(
        TotalsRestored(tuple(state.devices.values())),
        lambda i: Instant(i.mono_ns - back * S, i.wall_ns),
        lambda good: good,
    )
    envelope = author.envelope("ledger", restored)
    for account in restored.devices:
        run.continued[account.device] = min(account.start, envelope.at)
        for one in account.containers:
            # Without the holdings that are not reported yet.
            continuing = plus(amounts(one.holding), *map(amounts, one.closing))
            rest = tuple(a - b for a, b in zip(amounts(one), continuing, strict=True))
            run.base[account.device, one.id] = rest  # type: ignore[assignment]
    run.apply(envelope)


def check_restart(state: Usage, run: Run) -> None:
    """Check that no total has fallen, and that no container has the amounts of another."""
    for device, before in state.devices.items():
        # The account of a device that was gone for minutes before its first sample is forgotten.
        first = run.devices.get((device, run.continued[device]))
        if first is None:
            continue
        assert_grown(of_device(before)[:-1], of_device(first)[:-1])
        old = {one.subject: one for one in before.containers}
        for one in first.containers:
            known = old.get(one.subject)
            if known is not None and one.subject.uid and one.start == known.start:
                assert_grown(of_container(known), of_container(one))
        check_new_containers(before.containers, first)


def check_new_containers(old: Iterable[ContainerUsage], account: DeviceUsage) -> None:
    """Check that a container that had no account before has held the device only since then."""
    known = {one.subject for one in old if one.subject.uid}
    for one in account.containers:
        if one.subject not in known:
            assert one.held_ns <= max(account.at.mono_ns - one.start.mono_ns, 0)
