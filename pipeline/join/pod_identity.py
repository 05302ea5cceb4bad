"""Which uid goes with which name of a pod, over time.

The kubelet's list has names and its checkpoint uids, and each is heard at moments of its own.
1. A statement that has both a name and a uid makes a pair: from a source of pods, or of containers.
2. Else a name and a uid are brought together by what the kubelet says of both: the container's
   name, the resource and the very ids that it asked for. Both must have been told of the same
   moment: the name was listed when the uid had been told, and the uid was told again later.
3. A pair once seen is not broken. A uid keeps its name; only a statement of the first kind corrects
   a pair of the second. A name keeps its uid for as long as it is listed without a break, with the
   same ids, and isn't known to have another.
4. An id that the kubelet lists under a name is held by no other pod: a uid that has the same id,
   and isn't that name's, is of a pod that is gone, or that isn't listed yet.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from pipeline.join.claim_resolution import Heard, Word
from pipeline.join.device_index import DeviceIndex
from pipeline.join.partial_claims import (
    Ids,
    Place,
    Round,
    Slot,
    ids_of,
    place_of,
    slot_of,
    sort,
    unlisted,
)
from pipeline.model import NS, Evidence, Instant

Said: TypeAlias = Callable[[str], Instant | None]
"""Tells when a source last stood by its claims."""

REMEMBERED_NS: Final = 600 * NS
"""How long a pair is remembered once neither its name nor its uid is told any more."""

MOST_REMEMBERED: Final = 8192
"""How many pairs are remembered: those that were told of last."""

_ALWAYS: Final = -(1 << 63)


class _Bond(NamedTuple):
    """The name of a uid.

    Attributes:
        place: the name.
        certain: somebody stated both at once.
        seen_ns: when either was last told.
    """

    place: Place
    certain: bool
    seen_ns: int


class _Meant(NamedTuple):
    """The pod that a name means.

    Attributes:
        uid: the pod's.
        from_ns: since when the name has meant that pod, as far as is known.
    """

    uid: str
    from_ns: int


class _Listed(NamedTuple):
    """A name with the pod that it means, as long as it is listed.

    Attributes:
        meant: the pod.
        ids: what the name was listed with.
    """

    meant: _Meant
    ids: Mapping[Slot, frozenset[Ids]]

    def goes_on(self, ids: Mapping[Slot, frozenset[Ids]]) -> bool:
        """Whether the name is still listed with the same ids: a pod's never change."""
        common = self.ids.keys() & ids.keys()
        return bool(common) and all(self.ids[slot] == ids[slot] for slot in common)


class _Since(NamedTuple):
    """Since when a source tells something.

    Attributes:
        told_ns: when it first did.
        absent_ns: when it last told that it wasn't so.
    """

    told_ns: int
    absent_ns: int


class Moment(NamedTuple):
    """When words are put together.

    Attributes:
        at: now.
        said: tells when a source last stood by its claims.
        before: tells when a source last stood by the claims that it made before those.
        speaking: the sources whose claims stand.
    """

    at: Instant
    said: Said
    before: Said
    speaking: Set[str]


class Pairs:
    """Puts together words that lack a pod's name or its uid.

    Attributes:
        waiting: sources of words that may be of one pod, once the sources have told them again.
    """

    def __init__(self) -> None:
        self.waiting: frozenset[str] = frozenset()
        self._bonds: dict[str, _Bond] = {}
        self._names: dict[Place, _Listed] = {}
        self._since: dict[tuple[Slot, Place | str, Ids], _Since] = {}
        self._met: dict[tuple[Place, str], int] = {}
        self._running: dict[tuple[Place, str], int] = {}

    def meant(self, place: Place, uid: str, moment: Instant) -> bool:
        """Whether a name meant a pod at a moment, as far as lists and checkpoints tell."""
        known = self._names.get(place)
        if known is None or known.meant.uid != uid:
            return False
        return known.meant.from_ns <= moment.mono_ns

    def name(
        self,
        heard: Heard,
        devices: DeviceIndex,
        running: Iterable[tuple[Place, str]],
        moment: Moment,
        *,
        complete: bool,
    ) -> None:
        """Complete all words, as far as that can be done, and drop those that are of nobody.

        Args:
            heard: the words.
            devices: the devices of the node.
            running: names and uids of pods that the runtime has containers of.
            moment: when.
            complete: all pods that hold something are named by some source.
        """
        words = [*heard.words, *heard.vague]
        told = sort(words)
        self._state(told, words, running, moment.at)
        stated = {uid for uids in told.stated.values() for uid in uids}
        chosen = self._choose(told, stated, moment)
        self._remember(told, chosen, moment)
        if all(word.subject.pod and word.subject.uid for word in words):
            return
        listed = {
            (slot[2], text)
            for slots in told.listed.values()
            for slot, several in slots.items()
            for ids in several
            for text in ids
        }

        def completed(words: Iterable[Word]) -> Iterator[Word]:
            for word in words:
                done = self._complete(word, chosen, stated)
                if done.subject.pod:
                    yield done
                elif (left := unlisted(done, listed, devices)) is None:
                    continue
                elif not complete or left.evidence <= Evidence.RUNTIME_ENV:
                    yield self._by_memory(left)
                # Else it is gone: the checkpoint keeps such pods until it is written anew.

        heard.words, heard.vague = [*completed(heard.words)], [*completed(heard.vague)]

    def _state(
        self,
        told: Round,
        words: Iterable[Word],
        running: Iterable[tuple[Place, str]],
        at: Instant,
    ) -> None:
        """Find out which pairs are stated at once."""
        for word in words:
            subject = word.subject
            if subject.pod and subject.uid:
                told.stated.setdefault(place_of(word), {})[subject.uid] = _ALWAYS
        begun = bool(self._running)
        self._running = {
            pair: self._running.get(pair, at.mono_ns if begun else _ALWAYS) for pair in running
        }
        for (place, uid), since in self._running.items():
            told.stated.setdefault(place, {}).setdefault(uid, since)

    def _compare(
        self, told: Round, stated: Set[str], moment: Moment
    ) -> tuple[dict[Place, dict[str, int | None]], dict[Place, set[str]], dict[Place, int]]:
        """Compare names that are listed with uids that are told.

        Returns:
            By name: the uids that may be its pod's, each with the moment from which on it is known
                to be, or None where it isn't known to be; the sources that told of both; since when
                the name has been listed as it is.
        """
        since: dict[tuple[Slot, Place | str, Ids], _Since] = {}
        said = moment.said
        begun: dict[Place, int] = {}
        by_ids: dict[tuple[str, str, Ids], dict[Place, list[tuple[Slot, int]]]] = {}
        for place, slots in told.listed.items():
            for slot, several in slots.items():
                for ids in several:
                    ns = self._begin(since, (slot, place, ids), moment).told_ns
                    begun[place] = min(begun.get(place, ns), ns)
                    of_ids = by_ids.setdefault((slot[1], slot[2], ids), {})
                    of_ids.setdefault(place, []).append((slot, ns))
        candidates: dict[Place, dict[str, int | None]] = {}
        sources: dict[Place, set[str]] = {}
        met: dict[tuple[Place, str], int] = {}
        for uid, words in told.kept.items():
            for word in words:
                slot, ids = slot_of(word), ids_of(word)
                its = self._begin(since, (slot, uid, ids), moment)
                of_ids = by_ids.get((slot[1], slot[2], ids), {})
                if len(of_ids) != 1 or uid in stated:
                    continue
                [(place, listing)] = of_ids.items()
                if place in told.stated or not self._may_be(uid, place):
                    continue
                uids = candidates.setdefault(place, {})
                uids.setdefault(uid, None)
                for other, listed_ns in listing:
                    times = _ns(said(other[0])), _ns(said(slot[0]))
                    if self._meet(met, (place, uid), its.told_ns, *times):
                        # It may have been there before, if that wasn't told otherwise meanwhile.
                        begin = listed_ns if its.absent_ns < listed_ns else its.told_ns
                        before = uids[uid]
                        uids[uid] = begin if before is None else min(begin, before)
                    sources.setdefault(place, set()).update({slot[0], other[0]})
        self._since, self._met = since, met
        return candidates, sources, begun

    def _choose(self, told: Round, stated: Set[str], moment: Moment) -> dict[Place, _Meant]:
        """Return the pod that each name means now, where that is known."""
        candidates, sources, begun = self._compare(told, stated, moment)
        of_uid = Counter(uid for uids in told.stated.values() for uid in uids)
        of_uid.update(uid for uids in candidates.values() for uid in uids)
        chosen: dict[Place, _Meant] = {}
        waiting: set[str] = set()
        for place in {**told.listed, **told.stated}:
            its_uids: Mapping[str, int | None]
            its_uids = told.stated.get(place) or candidates.get(place, {})
            now: _Meant | None = None
            for uid, begin_ns in its_uids.items():
                if len(its_uids) > 1 or of_uid[uid] > 1:
                    continue
                if begin_ns is None:
                    waiting |= sources[place]
                else:
                    now = _Meant(uid, max(begin_ns, begun.get(place, _ALWAYS)))
            found = self._followed(place, told.listed.get(place, {}), now, moment.said)
            if found is not None:
                chosen[place] = found
        self.waiting = frozenset(waiting)
        return chosen

    def _followed(
        self,
        place: Place,
        slots: Mapping[Slot, frozenset[Ids]],
        now: _Meant | None,
        said: Said,
    ) -> _Meant | None:
        """Return the pod that a name means, by what is told now and what is remembered."""
        known = self._names.get(place)
        if known is None or not known.goes_on(slots):
            return now
        before = known.meant
        if now is None:
            return before
        if now.uid == before.uid:
            return now if now.from_ns < before.from_ns else before
        # What was listed before the other pod was told of is about the one before.
        listed_ns = max(_ns(said(slot[0])) for slot in slots)
        return now if listed_ns >= now.from_ns else before

    def _begin(
        self,
        since: dict[tuple[Slot, Place | str, Ids], _Since],
        key: tuple[Slot, Place | str, Ids],
        moment: Moment,
    ) -> _Since:
        """Note since when something is told."""
        source = key[0][0]
        new = _Since(_ns(moment.said(source)), _ns(moment.before(source)))
        since[key] = self._since.get(key, new)
        return since[key]

    def _meet(
        self,
        met: dict[tuple[Place, str], int],
        pair: tuple[Place, str],
        since_ns: int,
        listed_ns: int,
        kept_ns: int,
    ) -> bool:
        """Whether a name was listed at a moment between two at which a uid was told.

        A uid never comes back, so it was there between the two. A name may have been another's.

        Args:
            met: gets the first moment at which it may have been so.
            pair: the name and the uid.
            since_ns: when the uid was first told.
            listed_ns: when the name was last listed.
            kept_ns: when the uid was last told.
        """
        if (first := self._met.get(pair)) is None and listed_ns >= since_ns:
            first = listed_ns
        if first is None:
            return False
        met[pair] = min(first, met.get(pair, first))
        return kept_ns >= first

    def _may_be(self, uid: str, place: Place) -> bool:
        bond = self._bonds.get(uid)
        return bond is None or bond.place == place

    def _remember(self, told: Round, chosen: Mapping[Place, _Meant], moment: Moment) -> None:
        bonds, now_ns = self._bonds, moment.at.mono_ns

        def tie(uid: str, place: Place, *, certain: bool) -> None:
            before = bonds.pop(uid, None)
            if before is not None and (before.certain or not certain):
                place, certain = before.place, before.certain
            bonds[uid] = _Bond(place, certain, now_ns)

        for place, uids in told.stated.items():
            for uid in uids:
                if place in told.listed or uid in told.kept or uid in bonds:
                    tie(uid, place, certain=True)
        for place, meant in chosen.items():
            tie(meant.uid, place, certain=False)
        for uid in told.kept:
            if uid in bonds:
                tie(uid, bonds[uid].place, certain=False)
        while bonds:
            oldest = next(iter(bonds))
            if bonds[oldest].seen_ns + REMEMBERED_NS > now_ns and len(bonds) <= MOST_REMEMBERED:
                break
            del bonds[oldest]
        names = {
            place: _Listed(chosen[place], slots)
            for place, slots in told.listed.items()
            if place in chosen
        }
        for place, known in self._names.items():
            # Of a source that is silent nothing is known that would end it.
            silent = all(slot[0] not in moment.speaking for slot in known.ids)
            if place not in told.listed and silent and known.meant.uid in bonds:
                names[place] = known
        self._names = names

    def _complete(self, word: Word, chosen: Mapping[Place, _Meant], stated: Set[str]) -> Word:
        subject = word.subject
        if not subject.pod:
            bond = self._bonds.get(subject.uid)
            meant = chosen.get(bond.place) if bond is not None else None
            listed = meant is not None and meant.uid == subject.uid
            if bond is None or not (listed or subject.uid in stated):
                return word
            named = replace(subject, namespace=bond.place[0], pod=bond.place[1])
        elif not subject.uid and (found := chosen.get(place_of(word))) is not None:
            if not self._may_be(found.uid, place_of(word)):
                return word
            named = replace(subject, uid=found.uid)
        else:
            return word
        return word._replace(subject=named)

    def _by_memory(self, word: Word) -> Word:
        bond = self._bonds.get(word.subject.uid)
        if bond is None:
            return word
        namespace, pod = bond.place
        return word._replace(subject=replace(word.subject, namespace=namespace, pod=pod))


def _ns(when: Instant | None) -> int:
    return _ALWAYS if when is None else when.mono_ns
