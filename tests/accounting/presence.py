"""Who is on a device: when holdings begin and end, over restarts too."""

from collections import defaultdict
from fractions import Fraction
from typing import Any, Final

from tests.accounting.counter import Counted
from tests.accounting.given_out import (
    Look,
    S,
    Who,
)
from tests.accounting.parts import (
    NO_ONE,
    SLICES,
    Cut,
    Episode,
    Had,
    Holders,
    Since,
    Sum,
)

SEEN_WITHIN: Final = 60 * S
"""How long after the first look a container may be seen that goes on after a restart."""
PAGE: Final = ("elapsed", "unheld", "unknown", "busy", "energy", "busy_nobody", "energy_nobody")


class Presence:
    """Who is on a device, and when their holdings begin and end."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.start: int | None = None
        self.at = 0
        self.elapsed = 0
        self.gap = 0
        self.holding: set[Who] = set()
        """Those who held it in the interval that is counted now."""
        self.users: set[Who] = set()
        """Whose processes the last look showed."""
        self.alone: Who = NO_ONE
        """The one that did, if there was just one."""
        self.laid_gaps = 0
        self.gaps: list[tuple[int, int, str]] = []
        self.unheld, self.unknown = Sum(), Sum()
        self.busy, self.energy = Sum(), Sum()
        self.busy_no_one, self.energy_no_one = Sum(), Sum()
        self.busy_known = self.energy_known = False
        self.had: dict[Who, Had] = defaultdict(Had)
        self.counter = Counted()
        self.since = Since()
        self.idle: Fraction | None = None
        self.hours: dict[int, dict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
        # Of this run:
        self.cuts: list[Cut] = []
        self.first: int | None = None
        self.patience = 15 * S
        self.memory_good = 0
        self.away = self.renewed = self.written = False
        self.offset = 0
        self.boot = 0
        self.moved = 0
        self.before: dict[str, Any] = {}
        self.log: dict[int, int] = {}
        """By the moment of each look, the time since the account's start."""

    # -- who holds, as it is told ---------------------------------------------------------------

    def rebase(self, begun: int, offset: int) -> None:
        """Over a boot of the machine, the wall clock alone tells how much time has passed.

        What was heard after the last look has passed in any case.
        """
        self._shift(-self.moved)
        known = [one for had in self.had.values() for one in had.episodes]
        heard = [self.at, *(one.start if one.end is None else one.end for one in known)]
        passed = max(begun + offset - self.at - self.offset, max(heard) - self.at)
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
                one.start = min(one.start, now)
                if one.end is not None and one.end > now:
                    one.end = now

    def abandon(self) -> bool:
        """The device wasn't found for too long: the page begins anew, and holdings have ended.

        Returns:
            Whether there were any: the account is written then, with moments of this boot.
        """
        given_out = False
        for had in self.had.values():
            last = had.episodes[-1] if had.episodes else None
            if last is not None and not last.final:
                last.end, last.final = max(had.seen[0], last.start), True
                given_out = True
            had.pending = False
        self.renewed = True
        return given_out

    def undecided(self, now: int, tick: int) -> bool:
        """Whether it isn't known yet, or only just, who goes on after a start."""
        return self.first is None or 0 <= now - self.first - SEEN_WITHIN <= tick

    def _restart(self) -> None:
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
        self.away, self.renewed, self.written = True, False, False
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
            for one in had.episodes[-4:]:
                if one.end is not None and not one.final:
                    one.gap += one.overlap(self.at, one.end)
                    one.final = True

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
            last = had.episodes[-1] if had.episodes else None
            if last is not None and not last.final and last.end is not None and last.end >= at:
                last.end = None  # there was no moment at which it was there no more
                return last
            begin = at if last is None or last.end is None else max(at, last.end)
            had.episodes.append(Episode(who, self.device, begin))
        assert had.live is not None
        return had.live

    def expire(self, at: int) -> None:
        """Let time go on: who isn't seen again after a start has ended before it."""
        self.close(at)
        if self.first is None or at <= self.first + SEEN_WITHIN:
            return
        for had in self.had.values():
            if had.pending:
                had.pending = False
                last = had.episodes[-1]
                last.end, last.final = max(had.seen[0], last.start), True

    def close(self, at: int) -> None:
        """What has ended is final when no look has been told of for three usage intervals."""
        for had in self.had.values():
            for episode in had.episodes[-4:]:
                if episode.end is None or episode.final:
                    continue
                if at > episode.end + self.patience and self.first is not None:
                    # That it has ended may be known since the last look alone.
                    episode.final, episode.late = True, max(episode.end + self.patience, self.at)
                    episode.gap += episode.overlap(self.at, at)
                    if all(one.final for one in had.episodes):
                        self._disown(episode.who)

    def _disown(self, who: Who) -> None:
        """What energy is still to come for what it had falls to nobody."""
        self.since.held.pop(who, None)
        self.since.busy[NO_ONE] += self.since.busy.pop(who, Fraction(0))

    def _presence(self, look: Look, begin: int, over: int | None = None) -> None:
        """Note who is there by the processes that a look shows; after a break from it on."""
        alone = self._alone(look.at, look.at)
        there = {alone if one.who is None else one.who for one in look.works if one.there}
        there.discard(NO_ONE)
        ended = {one.who for one in look.works if one.who and not one.there} - there
        since = begin if over is None else over
        for who in sorted(there):
            self._present(who, since)
            self.had[who].uses = True
        for who in sorted(ended):
            if over is None and not self.had[who].holds and not self.had[who].uses:
                had = self.had[who]
                if had.pending or (
                    had.live is None
                    and not any(e.overlap(begin, look.at) and not e.final for e in had.episodes)
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

    def _alone(self, begin: int, end: int) -> Who:
        """Return the one container that has held the device in a time, if there is just one."""
        found = {who for cut in self._spanned(begin, end) for who in cut.holders}
        return found.pop() if len(found) == 1 else NO_ONE

    def _spanned(self, begin: int, end: int) -> list[Cut]:
        """Return the cuts that reach into a time, or hold at a moment."""
        ends = [*(cut.at for cut in self.cuts[1:]), max(end, begin) + 1]
        return [
            cut
            for cut, upto in zip(self.cuts, ends, strict=True)
            if cut.at <= end and upto > begin and (cut.at < end or begin == end)
        ]

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
