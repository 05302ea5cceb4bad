"""What must come of a story, in exact fractions, by docs/usage.md and docs/sinks/ledger.md alone.

Nothing of `pipeline` is used here. Where a quantity is split, podgpu counts in whole units: each
`Sum` knows by how many of them it may differ (`slack`), which is 0 while all parts were whole.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from tests.accounting.told import (
    HOUR,
    MS,
    Act,
    Begun,
    Erred,
    Filed,
    Given,
    Killed,
    Look,
    Looked,
    Rebooted,
    Running,
    S,
    Set,
    Shown,
    Spoken,
    Stopped,
    Story,
    Who,
)

LONGEST_GAP: Final = 400 * 24 * HOUR
"""A gap in the file has no more; a longer one is a clock that was wrong."""
SEEN_WITHIN: Final = 60 * S
"""How long after the first look a container may be seen that goes on after a restart."""
PATIENCE: Final = 10 * S
"""For how long looks are passed over at a start, while a source hasn't spoken."""
SHORTEST: Final = 900 * MS
"""The least interval that tells of a peak, and of what the card draws when idle."""
WATTS: Final = 6000
"""1.5 times the power limit where nobody reports one: no counter grows faster, in mJ per ms."""
AGREE: Final = 60 * S
"""For how long readings of an energy counter must agree to replace the last good one."""
FOUND_WITHIN: Final = 300 * S
"""Within which time after a start a device must be found to go on."""
PAGE: Final = ("elapsed", "unheld", "unknown", "busy", "energy", "busy_nobody", "energy_nobody")
NOT_SET: Final = S // 2
"""Up to so much a wall time that is kept isn't taken for one of a clock that was set since."""
ONE_ERROR: Final = 5 * S
"""What two sources tell of one GPU with the same code within so long is one error."""
SLICES: Final = {"m1": 1, "m2": 3}
OF_GPU: Final = {"m1": "g2", "m2": "g2"}
ALL_SLICES: Final = 7
NOBODY: Final = ""


@dataclass
class Sum:
    """A total: its exact value, and by how many whole units podgpu's may differ from it."""

    value: Fraction = Fraction(0)
    slack: int = 0

    def add(self, amount: Fraction | int, slack: int | None = None) -> None:
        amount = Fraction(amount)
        self.value += amount
        self.slack += int(amount.denominator != 1) if slack is None else slack

    def fits(self, found: int) -> bool:
        return found == self.value if not self.slack else abs(found - self.value) <= self.slack


@dataclass
class Episode:
    """A holding."""

    who: Who
    device: str
    start: int
    end: int | None = None
    counted: int = 0
    gap: int = 0
    held: Sum = field(default_factory=Sum)
    busy: Sum = field(default_factory=Sum)
    energy: Sum = field(default_factory=Sum)
    busy_known: int = 0
    energy_known: bool = False
    peak: int | None = None
    byte_ns: int = 0
    memory_ns: int = 0
    xids: Counter[int] = field(default_factory=Counter)
    final: bool = False
    late: int = 0
    """When it was final, if no look came."""

    def overlap(self, begin: int, end: int) -> int:
        upto = end if self.end is None else min(end, self.end)
        return max(upto - max(begin, self.start), 0)


@dataclass
class Had:
    """What a container has had of a device, over all of its holdings."""

    held: Sum = field(default_factory=Sum)
    busy: Sum = field(default_factory=Sum)
    energy: Sum = field(default_factory=Sum)
    busy_known: bool = False
    energy_known: bool = False
    xids: Counter[int] = field(default_factory=Counter)
    episodes: list[Episode] = field(default_factory=list)
    holds: bool = False
    uses: bool = False
    ceased: int = -1
    memory: int | None = None
    pending: bool = False
    came: int = 0
    """When it was there, after it wasn't, or nobody knew."""
    seen: tuple[int, int, int] = (0, 0, 0)
    """The last look that podgpu took while it was there, before a start, and the time and the gaps
    that were counted up to then."""

    @property
    def live(self) -> Episode | None:
        last = self.episodes[-1] if self.episodes else None
        return last if last is not None and last.end is None and not self.pending else None


Holders = dict[Who, float | None]


@dataclass
class Cut:
    """Who holds a device from a moment on."""

    at: int
    holders: Holders
    listed: bool


class Counted:
    """The energy counter of a GPU: which readings can be true, and what was used since."""

    def __init__(self) -> None:
        self.base: tuple[int, int] | None = None
        self.rival: tuple[int, int, int, int] | None = None

    def clear(self) -> None:
        self.base = self.rival = None

    def judge(self, at: int, value: int) -> int | None:
        """Return what was used since the last good reading; None if that isn't known."""
        if self.base is None:
            self.base = (at, value)
            return None
        if _possible(self.base, (at, value)):
            used = value - self.base[1]
            self.base, self.rival = (at, value), None
            return used
        rival = self.rival
        if rival is None or not _possible((rival[2], rival[3]), (at, value)):
            self.rival = (at, value, at, value)
            return None
        self.rival = (rival[0], rival[1], at, value)
        if at - rival[0] >= AGREE and value > rival[1]:
            used = value - rival[1]
            self.base, self.rival = (at, value), None
            return used
        return None


def _possible(before: tuple[int, int], now: tuple[int, int]) -> bool:
    """Whether a counter, in mJ, can have gone from one reading to the other."""
    grown, took = now[1] - before[1], now[0] - before[0]
    return 0 <= grown <= Fraction(WATTS * (took + S), MS)


@dataclass
class Since:
    """What has happened on a device since the energy counter's last good reading."""

    time: int = 0
    held: dict[Who, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    busy: dict[Who, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    spans: dict[int, tuple[Episode, int]] = field(default_factory=dict)
    known: bool = True
    unknown: set[Who] = field(default_factory=set)
    present: set[Who] = field(default_factory=set)


class Account:
    """The account of one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.start: int | None = None
        self.at = 0
        self.elapsed = 0
        self.gap = 0
        self.holding: set[Who] = set()
        """Those who held it in the interval that is counted now."""
        self.laid_gaps = 0
        self.gaps: list[tuple[int, int, str]] = []
        self.unheld, self.unknown = Sum(), Sum()
        self.busy, self.energy = Sum(), Sum()
        self.busy_nobody, self.energy_nobody = Sum(), Sum()
        self.busy_known = self.energy_known = False
        self.had: dict[Who, Had] = defaultdict(Had)
        self.instances: list[Account] = []
        self.counter = Counted()
        self.since = Since()
        self.idle: Fraction | None = None
        self.hours: dict[int, dict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
        # Of this run:
        self.cuts: list[Cut] = []
        self.first: int | None = None
        self.patience = 15 * S
        self.memory_good = 0
        self.away = self.renewed = False
        self.offset = 0
        self.boot = 0
        self.moved = 0
        self.before: dict[str, Any] = {}
        self.log: dict[int, int] = {}
        """By the moment of each look, the time since the account's start."""

    # -- who holds, as it is told ---------------------------------------------------------------

    def rebase(self, begun: int, offset: int) -> None:
        """Over a boot of the machine, the wall clock alone tells how much time has passed."""
        self._shift(-self.moved)
        passed = max(begun + offset - self.at - self.offset, 0)
        self.moved = begun - passed - self.at
        self._shift(self.moved)

    def _shift(self, by: int) -> None:
        self.at += by
        for had in self.had.values():
            had.seen = (had.seen[0] + by, *had.seen[1:])
            for one in had.episodes:
                one.start += by
                one.end = None if one.end is None else one.end + by

    def cap(self, now: int) -> None:
        """Nothing of it lies after the moment when it goes on."""
        for had in self.had.values():
            for one in had.episodes:
                if one.start > now:
                    one.start = now
                if one.end is not None and one.end > now:
                    one.end = now

    def abandon(self) -> None:
        """The device wasn't found for too long: the page begins anew, and holdings have ended."""
        for had in self.had.values():
            last = had.episodes[-1] if had.episodes else None
            if last is not None and not last.final:
                last.end, last.final = max(had.seen[0], last.start), True
            had.pending = False
        self.renewed = True

    def undecided(self, now: int, tick: int) -> bool:
        """Whether it isn't known yet, or only just, who goes on after a start."""
        return self.first is None or 0 <= now - self.first - SEEN_WITHIN <= tick

    def _begin_anew(self) -> None:
        """The page begins anew with the first look; until then the file has the old account."""
        self.renewed = False
        self.busy_known = self.energy_known = False
        self.before = {name: getattr(self, name) for name in PAGE}
        for name in PAGE:
            had_ = getattr(self, name)
            self.before[name] = had_ if isinstance(had_, int) else Sum(had_.value, had_.slack)

    def on_page(self, name: str) -> Sum:
        """Return a total as the page has it."""
        whole, before = getattr(self, name), self.before.get(name, 0)
        if isinstance(whole, int):
            return Sum(Fraction(whole - before))
        gone = before if isinstance(before, Sum) else Sum()
        return Sum(whole.value - gone.value, whole.slack)

    def begin_run(self) -> None:
        """podgpu starts: what was there may go on."""
        self.away, self.renewed = True, False
        self.cuts, self.first = [], None
        self.counter.clear()
        self.since = Since()
        self.idle = None
        for had in self.had.values():
            had.holds = had.uses = False
            had.memory = None
            last = had.episodes[-1] if had.episodes else None
            if last is not None and not last.final:
                if last.end is None and not had.pending:
                    had.seen = (self.at, self.elapsed, self.gap)
                had.pending = last.end is None
                if last.end is not None:
                    last.gap += last.overlap(self.at, last.end)
                    last.final = True

    def hold(self, at: int, holders: Holders, listed: bool) -> None:
        """Others hold the device from now on."""
        self.cuts.append(Cut(at, holders, listed))
        if self.first is not None:
            self._apply(at, holders)

    def _apply(self, at: int, holders: Holders) -> None:
        self.expire(at)
        for who, had in self.had.items():
            if had.holds and who not in holders:
                had.holds, had.ceased = False, at
                if not had.uses and had.live is not None:
                    had.live.end = at
        for who in holders:
            had = self.had[who]
            if not had.holds:
                had.holds = True
                self._present(who, at)

    def _present(self, who: Who, at: int) -> Episode:
        """Return the holding of one who is there from a moment on."""
        had = self.had[who]
        if had.live is None:
            had.came = at
        if had.pending:
            had.pending = False
            before, elapsed, gap = had.seen
            episode = had.episodes[-1]
            episode.counted += self.elapsed - elapsed
            episode.gap += self.gap - gap - max(episode.start - before, 0)
            return episode
        if had.live is None:
            last = had.episodes[-1].end if had.episodes else None
            begin = at if last is None else max(at, last)
            had.episodes.append(Episode(who, self.device, begin))
        assert had.live is not None
        return had.live

    def expire(self, at: int) -> None:
        """Let time go on: who isn't seen again after a start has ended before it.

        What has ended is final when no look comes for three usage intervals.
        """
        for had in self.had.values():
            for episode in had.episodes[-4:]:
                if episode.end is None or episode.final:
                    continue
                if at > episode.end + self.patience and self.first is not None:
                    episode.final, episode.late = True, episode.end + self.patience
                    episode.gap += episode.overlap(self.at, at)
                    if all(one.final for one in had.episodes):
                        self._disown(episode.who)
        if self.first is None or at <= self.first + SEEN_WITHIN:
            return
        for had in self.had.values():
            if had.pending:
                had.pending = False
                last = had.episodes[-1]
                last.end, last.final = max(had.seen[0], last.start), True

    def _disown(self, who: Who) -> None:
        """What energy is still to come for what it had falls to nobody."""
        self.since.held.pop(who, None)
        self.since.busy[NOBODY] += self.since.busy.pop(who, Fraction(0))

    # -- looks ----------------------------------------------------------------------------------

    def look(self, look: Look, hour_of: "Clocks") -> None:
        carries = look.device in OF_GPU.values()
        broke = self.first is None or look.since is None
        alone = self._alone(look.at if broke else self.at, look.at)
        if self.start is None:
            self.start = self.at = look.at
            self._first(look)
        elif look.since is None or self.first is None:
            self._break(look, hour_of, carries)
        else:
            self._interval(look, hour_of, carries, alone)
        self.at, self.offset = look.at, hour_of.offset
        self.log[look.at] = self.elapsed + self.laid_gaps
        self._memory(look, self._alone(look.at, look.at))
        self.finish(look.at)

    def _first(self, look: Look) -> None:
        self.first = look.at
        holders: Holders = {}
        later = [cut for cut in self.cuts if cut.at > look.at]
        for cut in self.cuts:
            if cut.at <= look.at:
                holders = cut.holders
        self._apply(look.at, holders)
        for one in self.instances:
            one.since = Since()
        self._presence(look, look.at, over=look.at)
        assert not later, "the moments of holders come in order"
        if look.energy is not None:
            self.counter.judge(look.at, look.energy)

    def _break(self, look: Look, hours: "Clocks", carries: bool) -> None:
        before, down = self.at, self.first is None
        if not carries:
            self.gap += look.at - before
            self.gaps.append((max(before, look.at - LONGEST_GAP), look.at, "down" if down else "blind"))
            laid = min(look.at - before, LONGEST_GAP)
            self.laid_gaps += laid
            for hour, part in hours.spread(look.at - laid, look.at):
                self.hours[hour]["gap"].add(part)
        self.counter.clear()
        self.since = Since()
        for one in self.instances:
            one.since = Since()
        if down:
            if self.renewed:
                self._begin_anew()
            self._first(look)
            return
        awaited = {who for who, had in self.had.items() if had.pending}
        self._presence(look, before, over=look.at)
        for who, had in self.had.items():
            for episode in had.episodes[-3:]:
                if not episode.final and who not in awaited:
                    episode.gap += episode.overlap(before, look.at)
        if look.energy is not None:
            self.counter.judge(look.at, look.energy)

    def _interval(self, look: Look, hours: "Clocks", carries: bool, alone: Who) -> None:
        begin, end = self.at, look.at
        took = end - begin
        was = {who for who, had in self.had.items() if had.uses}
        self.holding = {who for cut in self._spanned(begin, end) for who in cut.holders}
        self._presence(look, begin)
        gained: dict[str, Sum] = defaultdict(Sum)
        if not carries:
            self.elapsed += took
            self._held(begin, end)
            overlapping = [
                (had, episode, episode.overlap(begin, end))
                for had in self.had.values()
                if not had.pending
                for episode in had.episodes[-4:]
                if not episode.final and episode.overlap(begin, end)
            ]
            for had, episode, part in overlapping:
                episode.counted += part
                if had.memory is not None and end <= self.memory_good:
                    episode.byte_ns += had.memory * part
                    episode.memory_ns += part
            self._busy(look, begin, overlapping, was, gained, alone)
            spans = hours.spread(begin, end)
            for hour, part in spans:
                slack = len(self.had) if len(spans) > 1 else 0
                self.hours[hour]["accounted"].add(part, slack)
        self.since.time += took
        if look.energy is not None:
            begins = self.counter.base is None
            used = self.counter.judge(look.at, look.energy)
            if begins:
                self.since = Since()
                for one in self.instances:
                    one.since = Since()
            elif used is not None and carries:
                self._of_instances(end, used, gained, hours.spread(begin, end))
            elif used is not None:
                self._energy(used, gained)
        _lay(self.hours, hours.spread(begin, end), took, gained, len(self.had))

    def _presence(self, look: Look, begin: int, over: int | None = None) -> None:
        """Note who is there by the processes that a look shows; after a break from it on."""
        alone = self._alone(look.at, look.at)
        there = {alone if one.who is None else one.who for one in look.works if one.there}
        there.discard(NOBODY)
        ended = {one.who for one in look.works if one.who and not one.there} - there
        since = begin if over is None else over
        for who in sorted(there):
            self._present(who, since)
            self.had[who].uses = True
        for who in sorted(ended):
            if over is None and not self.had[who].holds and not self.had[who].uses:
                had = self.had[who]
                if had.pending:
                    self._present(who, since).end = look.at
                elif had.live is None and not any(
                    e.overlap(begin, look.at) and not e.final for e in had.episodes
                ):
                    self._present(who, since).end = look.at
        for who, had in self.had.items():
            if had.uses and who not in there:
                had.uses = False
                if had.holds:
                    continue
                live = had.live
                if live is not None:
                    live.end = had.ceased if had.ceased > begin else look.at

    def _held(self, begin: int, end: int) -> None:
        """Cut the time at each change of holders, and give each its part."""
        moments = [cut.at for cut in self.cuts]
        for cut, (start, stop) in zip(self.cuts, pairwise([*moments, end]), strict=True):
            length = min(stop, end) - max(start, begin)
            if length <= 0:
                continue
            parts = shares(cut.holders)
            rest = Fraction(length)
            uneven = False
            for who, part in parts.items():
                amount = part * length
                rest -= amount
                uneven |= amount.denominator != 1
                had = self.had[who]
                mine = [
                    one
                    for one in had.episodes
                    if one.overlap(max(start, begin), min(stop, end)) and not one.final
                ]
                slack = int(amount.denominator != 1)
                if not mine:
                    self.unheld.add(amount, slack)
                    self.unknown.add(amount, slack)
                    continue
                had.held.add(amount, slack)
                mine[-1].held.add(amount, slack)
                self.since.held[who] += amount
            self.unheld.add(rest, int(uneven))
            if not cut.listed:
                self.unknown.add(rest, int(uneven))
        self.cuts = [
            cut
            for at, cut in enumerate(self.cuts)
            if at + 1 == len(self.cuts) or self.cuts[at + 1].at > end
        ]

    def _busy(
        self,
        look: Look,
        begin: int,
        overlapping: list[tuple[Had, Episode, int]],
        was: set[Who],
        gained: dict[str, Sum],
        alone: Who,
    ) -> None:
        took = look.at - begin
        present = {episode.who for _, episode, _ in overlapping}
        self.since.present |= present
        held = self.holding
        for _, episode, part in overlapping:
            _, before = self.since.spans.get(id(episode), (episode, 0))
            self.since.spans[id(episode)] = (episode, before + part)
        if look.busy is None:
            self.since.known = False
            if look.mps:
                hidden = self._mps(look, held | was, {})
                self.since.unknown |= hidden
                for who in hidden:
                    self._forget_zero(who)
            return
        parts: dict[Who, Fraction] = defaultdict(Fraction)
        unknown: set[Who] = set()
        if look.device in SLICES:
            whose = {one.who for one in look.works if one.there or one.who is None} | was
            if not whose:
                whose = {alone}
            parts[whose.pop() or NOBODY if len(whose) == 1 else NOBODY] += look.busy
        elif not look.listed:
            parts[alone] += look.busy
            unknown = present - {alone} if alone else set(present)
        elif look.mps:
            unknown = self._mps(look, held | was, parts)
        else:
            for one in look.works:
                parts[alone if one.who is None else one.who] += one.busy or 0
        total = sum(parts.values(), Fraction(0))
        scale = Fraction(took) / total if total > took else Fraction(1)
        self.busy_known = True
        if look.mps:
            self.since.unknown |= unknown
        all_ = total * scale
        assert all_.denominator == 1
        self.busy.add(all_)
        gained["busy"].add(all_)
        able = present - unknown
        nobody = sum((part for who, part in parts.items() if who not in able), Fraction(0)) * scale
        self.busy_nobody.add(nobody)
        self.since.busy[NOBODY] += nobody
        for who in unknown:
            self._forget_zero(who)
        for who in sorted(able):
            amount = parts[who] * scale
            had = self.had[who]
            had.busy_known = True
            had.busy.add(amount)
            self.since.busy[who] += amount
            mine = [(episode, part) for _, episode, part in overlapping if episode.who == who]
            every = sum(part for _, part in mine)
            for episode, part in mine:
                of_it = amount * part / every
                episode.busy.add(of_it, int(of_it.denominator != 1 or amount.denominator != 1))
                episode.busy_known += part
    def _alone(self, begin: int, end: int) -> Who:
        """Return the one container that has held the device in a time, if there is just one."""
        found = {who for cut in self._spanned(begin, end) for who in cut.holders}
        return found.pop() if len(found) == 1 else NOBODY

    def _spanned(self, begin: int, end: int) -> list[Cut]:
        """Return the cuts that reach into a time, or hold at a moment."""
        ends = [*(cut.at for cut in self.cuts[1:]), max(end, begin) + 1]
        return [
            cut
            for cut, upto in zip(self.cuts, ends, strict=True)
            if cut.at <= end and upto > begin and (cut.at < end or begin == end)
        ]

    def _mps(
        self, look: Look, others: set[Who], parts: dict[Who, Fraction]
    ) -> set[Who]:
        """While an MPS server works; return of whom nothing is known.

        Others held the device in the interval, or had processes there at its beginning.
        """
        total = Fraction(look.busy or 0)
        owners = {one.who for one in look.works} | others
        if len(owners) == 1 and any(one.client for one in look.works) and owners != {NOBODY}:
            parts[owners.pop() or NOBODY] = total
            return set()
        unknown = set()
        for who in others | {one.who for one in look.works if one.who}:
            mine = [one for one in look.works if one.who == who]
            if not mine or any(one.busy is None for one in mine):
                unknown.add(who)
            else:
                parts[who] = Fraction(sum(one.busy or 0 for one in mine))
        parts[NOBODY] = total - sum(parts.values(), Fraction(0))
        return unknown

    def _forget_zero(self, who: Who) -> None:
        """A 0 from before isn't kept: it would look like the whole."""
        had = self.had[who]
        if had.busy.value == 0:
            had.busy_known = False
        if had.energy.value == 0:
            had.energy_known = False
        for episode in had.episodes[-1:]:
            if episode.busy.value == 0:
                episode.busy_known = 0

    def _energy(self, used: int, gained: dict[str, Sum]) -> None:
        """Split what the counter has grown by."""
        since, self.since = self.since, Since()
        if not since.time:
            return
        busy = sum(since.busy.values(), Fraction(0))
        if since.known and not busy and since.time >= SHORTEST:
            power = Fraction(used, since.time)
            self.idle = power if self.idle is None else min(self.idle, power)
        if not since.known or not busy:
            base, above = Fraction(used), Fraction(0)
        else:
            base = min(Fraction(used), (self.idle or Fraction(0)) * since.time)
            above = used - base
        self.share_out(since, base, above, gained)

    def _of_instances(
        self, now: int, used: int, gained: dict[str, Sum], spans: list[tuple[int, int]]
    ) -> None:
        """Split a GPU's energy among its MIG instances; what none has stays on the GPU."""
        time, self.since = self.since.time, Since()
        since = {one.device: one.since for one in self.instances}
        weights = {
            name: sum(each.busy.values(), Fraction(0)) * SLICES[name]
            for name, each in since.items()
        }
        all_ = sum(weights.values(), Fraction(0))
        known = all(each.known for each in since.values())
        if known and not all_ and time >= SHORTEST:
            power = Fraction(used, time)
            self.idle = power if self.idle is None else min(self.idle, power)
        if not known or not all_:
            base, above = Fraction(used), Fraction(0)
        else:
            base = min(Fraction(used), (self.idle or Fraction(0)) * time)
            above = used - base
        rest = Fraction(used)
        for one in self.instances:
            own = base * SLICES[one.device] / ALL_SLICES
            more = above * weights[one.device] / all_ if all_ else Fraction(0)
            rest -= own + more
            had: dict[str, Sum] = defaultdict(Sum)
            one.share_out(since[one.device], own, more, had)
            one.since = Since()
            _lay(one.hours, spans, sum(part for _, part in spans), had, len(one.had))
            one.finish(now)
        self.energy_known = True
        self.energy.add(rest, 3)
        self.energy_nobody.add(rest, 3)
        gained["energy"].add(rest, 3)

    def share_out(
        self, since: Since, base: Fraction, above: Fraction, gained: dict[str, Sum]
    ) -> None:
        """Split energy: one part by held time, the other by busy time."""
        busy = sum(since.busy.values(), Fraction(0))
        used = base + above
        parts: dict[Who, Fraction] = defaultdict(Fraction)
        for who, held in since.held.items():
            parts[who] += base * held / since.time
        if above:
            for who, part in since.busy.items():
                parts[who] += above * part / busy
        even = used.denominator == 1
        whole = {who for who, part in parts.items() if part} - {NOBODY}
        one = not whole or (len(whole) == 1 and sum(parts[who] for who in whole) == used)
        slack = 0 if one and even else 3
        self.energy_known = True
        self.energy.add(used, int(not even))
        gained["energy"].add(used, int(not even))
        rest = used
        for who in sorted(since.present - since.unknown):
            amount = parts[who]
            had = self.had[who]
            mine = [
                each for each in since.spans.values() if each[0].who == who and not each[0].final
            ]
            if not mine:
                continue  # what is final gets nothing more
            rest -= amount
            had.energy_known = True
            had.energy.add(amount, slack)
            every = sum(part for _, part in mine)
            for episode, part in mine:
                episode.energy_known = True
                episode.energy.add(amount * part / every, slack + int(len(mine) > 1))
        self.energy_nobody.add(rest, slack * max(len(since.present), 1))

    def _memory(self, look: Look, alone: Who) -> None:
        """Memory that a look shows stands until the next."""
        self.memory_good = look.at + look.good_for
        there = [one for one in look.works if one.there]
        nameless = [one for one in there if one.who is None]
        for who, had in self.had.items():
            had.memory = None
            if had.live is None or look.used is None:
                continue
            mine = [one.memory for one in there if one.who == who]
            if who == alone and not look.listed:
                mine = [look.used]
            elif who == alone:
                mine += [one.memory for one in nameless]
            elif not mine and (nameless or not look.listed):
                continue
            known = [one for one in mine if one is not None]
            if len(known) < len(mine):
                continue
            had.memory = sum(known)
            live = had.live
            live.peak = had.memory if live.peak is None else max(live.peak, had.memory)

    def finish(self, at: int) -> None:
        """A look at or after its end has been counted, and its energy: nothing more is to come."""
        waits = self.since.spans if self.waits else {}
        for had in self.had.values():
            for episode in had.episodes[-4:]:
                if episode.end is not None and episode.end <= at and id(episode) not in waits:
                    episode.final = True

    @property
    def waits(self) -> bool:
        """Whether energy is still to come for what has been counted."""
        return self.device in SLICES or self.counter.base is not None


def shares(holders: Holders) -> dict[Who, Fraction]:
    """Return which part of the device each has."""
    known = {
        who: Fraction(part).limit_denominator(1000)
        for who, part in holders.items()
        if part is not None
    }
    if sum(known.values()) > 1:
        known = {}  # they aren't believed then, and nobody's is shown
    rest = 1 - sum(known.values(), Fraction(0))
    others = [who for who in holders if who not in known]
    parts = dict(known)
    if others:
        each = rest / len(others) if rest > 0 else min(known.values())
        parts |= dict.fromkeys(others, each)
    whole = sum(parts.values(), Fraction(0))
    return {who: part / whole for who, part in parts.items()} if whole > 1 else parts


def _lay(
    hours: dict[int, dict[str, Sum]],
    spans: list[tuple[int, int]],
    took: int,
    gained: dict[str, Sum],
    containers: int,
) -> None:
    """Lay what a look brought onto the hours that its time lies in."""
    for what, amount in gained.items():
        for hour, part in spans:
            slack = amount.slack + (containers + 1) * int(len(spans) > 1)
            hours[hour][what].add(amount.value * part / took, slack)


class Clocks:
    """The wall clock, at each moment of a story."""

    def __init__(self, wall: int) -> None:
        self.offset = wall

    def spread(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the hours that a time lies in, by the clock as it is set now, and its parts."""
        found = []
        start, stop = begin + self.offset, end + self.offset
        while start < stop:
            hour = start // HOUR
            upto = min(stop, (hour + 1) * HOUR)
            found.append((hour, upto - start))
            start = upto
        return found


class Reference:
    """Plays acts, and knows what must come of them."""

    def __init__(self, story: Story) -> None:
        self.clocks = Clocks(story.wall)
        self.sources = set(story.sources)
        self.claims = story.claims
        self.unheard: dict[Who, dict[str, float | None]] = {}
        self.accounts: dict[str, Account] = {}
        self.running: dict[Who, dict[str, float | None]] = {}
        self.given: dict[str, Who] = {}
        self.filed: dict[str, Who] = {}
        self.boot = 0
        self.now = -1
        self.up = False
        self.begun = self.offset_begun = 0
        self.known: set[str] = set()
        self.errors: dict[tuple[str, int], tuple[int, str]] = {}
        self.listed = False

    def play(self, acts: Iterable[Act]) -> None:
        for moment, act in in_order(acts):
            if not isinstance(act, Killed) and moment > self.now:
                self._pass(moment)  # what became of that time nobody has heard of
            self.now = moment
            match act:
                case Look():
                    self._look(act)
                case _:
                    self._do(moment, act)

    def _pass(self, now: int) -> None:
        """Let time go on."""
        for account in self.accounts.values() if self.up else ():
            account.expire(now)
            if account.away and now > self.begun + FOUND_WITHIN:
                account.abandon()

    def _do(self, at: int, act: Act) -> None:
        match act:
            case Begun(running=running, given=given, devices=devices, late=late):
                for name, account in self.accounts.items():
                    if account.boot != self.boot:
                        account.rebase(at, self.clocks.offset)
                        if name in devices:
                            account.cap(at)
                self.begun, self.offset_begun, self.up = at, self.clocks.offset, True
                self.unheard = {who: dict(holds) for who, holds in running.items()}
                self.running = {} if late or "runtime" not in self.sources else self.unheard
                self.given, self.filed = dict(given), {}
                if "kubelet" not in self.sources:
                    self.given = {}
                self.listed = "kubelet" in self.sources or not late and "runtime" in self.sources
                for account in self.accounts.values():
                    account.begin_run()
                self.known = set()
                self._show(at, devices)
                self._held(at)
            case Spoken():
                self.running, self.listed = self.unheard, True
                self._held(at)
            case Running(who=who, holds=holds):
                self.running.pop(who, None)
                if holds is not None:
                    self.running[who] = dict(holds)
                self._held(at)
            case Given(device=device, who=who):
                self.given.pop(device, None)
                if who is not None:
                    self.given[device] = who
                self._held(at)
            case Filed(device=device, who=who):
                self.filed.pop(device, None)
                if who is not None:
                    self.filed[device] = who
                self._held(at)
            case Rebooted():
                self.boot += 1
            case Shown(devices=devices):
                self._show(at, devices)
                self._held(at)
            case Killed() | Stopped():
                self.up = False
            case Set(by=by):
                self.clocks.offset += by
            case Erred():
                self._err(act)
            case _:
                pass

    def _show(self, at: int, devices: Iterable[str]) -> None:
        """Some devices can be found now: what wasn't for so long after a start goes on nowhere."""
        self.known |= set(devices)
        for device in devices:
            account = self.accounts.get(device)
            if account is not None and account.away:
                account.cap(at)
                account.away = False
                if abs(self.offset_begun - account.offset) > NOT_SET:
                    account.offset = self.offset_begun
                account.boot, account.moved = self.boot, 0

    def _held(self, at: int) -> None:
        for device, account in self.accounts.items():
            holders, last = self._holders(device), account.cuts[-1] if account.cuts else None
            if last is None or (last.holders, last.listed) != (holders, self.informed):
                account.hold(at, holders, self.informed)

    @property
    def informed(self) -> bool:
        """Whether what nobody is told to hold is free: a claim may name what nobody can find."""
        nameless = self.claims and any(device not in self.known for device in self.given)
        return self.listed and not nameless

    def _holders(self, device: str) -> Holders:
        found = {who: held[device] for who, held in self.running.items() if device in held}
        if device in self.given:
            found = {self.given[device]: None}
        elif device in self.filed and not found:
            found = {self.filed[device]: None}
        return found

    def _look(self, look: Look) -> None:
        if look.device not in self.accounts:
            account = self.accounts[look.device] = Account(look.device)
            if look.device in OF_GPU.values():
                account.instances = [
                    self.accounts[name] for name in SLICES if name in self.accounts
                ]
            account.hold(look.at, self._holders(look.device), self.informed)
        account = self.accounts[look.device]
        account.boot, account.moved = self.boot, 0
        if not account.cuts:
            account.hold(look.at, self._holders(look.device), self.informed)
        account.look(look, self.clocks)

    def _err(self, act: Erred) -> None:
        """An error strikes all that held or used the device at that moment."""
        account = self.accounts.get(act.device)
        key, said = (act.device, act.code), self.errors.get((act.device, act.code))
        self.errors[key] = (act.when, act.by)
        if said is not None and said[1] != act.by and act.when - said[0] <= ONE_ERROR:
            return
        if account is None or account.away:
            return
        if account.first is None:
            for who, had in account.had.items():
                if had.pending and who in self._holders(act.device):
                    had.xids[act.code] += 1
                    had.episodes[-1].xids[act.code] += 1
            return
        account.expire(act.when)
        for had in account.had.values():
            if not had.pending:
                for episode in had.episodes[-2:]:
                    there = episode.start <= act.when
                    if there and (episode.end is None or act.when < episode.end):
                        had.xids[act.code] += 1
                        episode.xids[act.code] += 1


def in_order(acts: Iterable[Act]) -> Sequence[tuple[int, "Act | Look"]]:
    """Return what happens in the order of its moments, whenever it was told.

    Looks are passed over while a source has yet to speak.
    """
    found: list[tuple[int, int, Act | Look]] = []
    waits, asked = False, None
    for act in acts:
        if isinstance(act, Begun):
            waits, asked = act.late, None
        elif isinstance(act, Spoken):
            waits = False
        elif isinstance(act, Looked) and waits:
            asked = act.at if asked is None else asked
            if act.at < asked + PATIENCE:
                continue
        if isinstance(act, Looked) and act.by != "gpus":
            continue  # who stands earlier in the configuration is believed
        if isinstance(act, Looked):
            found.extend((one.at, len(found), one) for one in act.looks)
        elif isinstance(act, Erred):
            found.append((act.when, len(found), act))
        else:
            found.append((act.at, len(found), act))
    found.sort(key=lambda each: each[:2])
    return [(moment, act) for moment, _, act in found]
