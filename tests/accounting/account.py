"""The account of a device: what each look brings, and whose it is."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import Final

from tests.accounting.given_out import (
    HOUR,
    MS,
    Look,
    Who,
)
from tests.accounting.parts import (
    NO_ONE,
    SLICES,
    Clocks,
    Episode,
    Had,
    Holders,
    Since,
    Sum,
    lay,
    shares,
)
from tests.accounting.presence import Presence

LONGEST_GAP: Final = 400 * 24 * HOUR
"""A gap in the file has no more; a longer one is a clock that was wrong."""
SHORTEST: Final = 900 * MS
"""The least interval that tells what the card draws when idle."""
CARRIERS: Final = ("g2",)
"""GPUs that carry MIG instances."""
ALL_SLICES: Final = 7


class Account(Presence):
    """The account of one device.

    Attributes:
        instances: the accounts of its MIG instances.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.instances: list[Account] = []

    def look(self, look: Look, hour_of: "Clocks") -> None:
        carries = look.device in CARRIERS
        if self.start is None:
            self.start = self.at = look.at
            self._first(look)
        elif look.since is None or self.first is None:
            self._break(look, hour_of, carries)
        else:
            self._interval(look, hour_of, carries)
        alone = self._alone(look.at, look.at)
        there = [one for one in look.works if one.there]
        self.users = {alone if one.who is None else one.who for one in there}
        self.at, self.offset = look.at, hour_of.offset
        self.log[look.at] = self.elapsed + self.laid_gaps
        self._memory(look, alone)
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
            self.gaps.append(
                (max(before, look.at - LONGEST_GAP), look.at, "down" if down else "blind")
            )
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
                self._restart()
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

    def _interval(self, look: Look, hours: "Clocks", carries: bool) -> None:
        begin, end = self.at, look.at
        took = end - begin
        was = self.users
        self.holding = {who for cut in self._spanned(begin, end) for who in cut.holders}
        self.alone = next(iter(self.holding)) if len(self.holding) == 1 else NO_ONE
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
            self._busy(look, begin, overlapping, was, gained)
            spans = hours.spread(begin, end)
            for hour, part in spans:
                slack = len(self.had) + 1 if len(spans) > 1 else 0
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
        lay(self.hours, hours.spread(begin, end), took, gained, len(self.had))

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
    ) -> None:
        took, alone = look.at - begin, self.alone
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
            parts[whose.pop() or NO_ONE if len(whose) == 1 else NO_ONE] += look.busy
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
        no_one = sum((part for who, part in parts.items() if who not in able), Fraction(0)) * scale
        self.busy_no_one.add(no_one)
        self.since.busy[NO_ONE] += no_one
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

    def _mps(self, look: Look, others: set[Who], parts: dict[Who, Fraction]) -> set[Who]:
        """While an MPS server works; return of whom nothing is known.

        Others held the device in the interval, or had processes there at its beginning.
        """
        total = Fraction(look.busy or 0)
        owners = {one.who or NO_ONE for one in look.works} | others
        if len(owners) == 1 and any(one.client for one in look.works) and owners != {NO_ONE}:
            parts[owners.pop()] = total
            return set()
        unknown = set()
        for who in (others | owners) - {NO_ONE}:
            mine = [one for one in look.works if one.who == who]
            if not mine or any(one.busy is None for one in mine):
                unknown.add(who)
            else:
                parts[who] = Fraction(sum(one.busy or 0 for one in mine))
        parts[NO_ONE] = total - sum(parts.values(), Fraction(0))
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
        time = self.counter.time
        if since.known and not busy and time >= SHORTEST:
            power = Fraction(used, time)
            self.idle = power if self.idle is None else min(self.idle, power)
        if not since.known or not busy:
            base, above = Fraction(used), Fraction(0)
        else:
            base = min(Fraction(used), (self.idle or Fraction(0)) * time)
            above = used - base
        self.share_out(since, base, above, gained)

    def _of_instances(
        self, now: int, used: int, gained: dict[str, Sum], spans: list[tuple[int, int]]
    ) -> None:
        """Split a GPU's energy among its MIG instances; what none has stays on the GPU."""
        time, self.since = self.counter.time, Since()
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
            lay(one.hours, spans, sum(part for _, part in spans), had, len(one.had))
            one.finish(now)
        self.energy_known = True
        self.energy.add(rest, 3)
        self.energy_no_one.add(rest, 3)
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
        whole = {who for who, part in parts.items() if part} - {NO_ONE}
        one = not whole or (len(whole) == 1 and sum(parts[who] for who in whole) == used)
        slack = 0 if one and even else 3
        self.energy_known = True
        self.energy.add(used, 2 * int(not even))
        gained["energy"].add(used, 2 * int(not even))
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
            spent = sum(time for _, time in mine)
            for episode, time in mine:
                episode.energy_known = True
                episode.energy.add(amount * time / spent, slack + int(len(mine) > 1))
        self.energy_no_one.add(rest, slack * max(len(since.present), 1))

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
