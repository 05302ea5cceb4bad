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

from pipeline.join.claim_resolution import ResolvedClaim, ResolvedClaims
from pipeline.join.device_index import DeviceIndex
from pipeline.join.partial_claims import (
    ClaimSlot,
    DeviceIds,
    PartialClaims,
    PodName,
    collect_partial,
    ids_of,
    pod_name_of,
    slot_of,
    without_listed_ids,
)
from pipeline.model import NS, Evidence, Instant

ConfirmedAt: TypeAlias = Callable[[str], Instant | None]
"""Tells when a source last stood by its claims."""

RETENTION_NS: Final = 600 * NS
"""How long a pair is remembered once neither its name nor its uid is told any more."""

MAX_PAIRS: Final = 8192
"""How many pairs are remembered: those that were told of last."""

_ALWAYS: Final = -(1 << 63)


class _KnownName(NamedTuple):
    """The name of a uid.

    Attributes:
        name: the name.
        is_stated: somebody stated both at once.
        seen_ns: when either was last told.
    """

    name: PodName
    is_stated: bool
    seen_ns: int


class _PodReference(NamedTuple):
    """The pod that a name means.

    Attributes:
        uid: the pod's.
        from_ns: since when the name has meant that pod, as far as is known.
    """

    uid: str
    from_ns: int


class _ListedName(NamedTuple):
    """A name with the pod that it means, as long as it is listed.

    Attributes:
        pod: the pod.
        ids: what the name was listed with.
    """

    pod: _PodReference
    ids: Mapping[ClaimSlot, frozenset[DeviceIds]]

    def is_unchanged(self, ids: Mapping[ClaimSlot, frozenset[DeviceIds]]) -> bool:
        """Whether the name is still listed with the same ids: a pod's never change."""
        common = self.ids.keys() & ids.keys()
        return bool(common) and all(self.ids[slot] == ids[slot] for slot in common)


class _ReportTimes(NamedTuple):
    """Since when a source tells something.

    Attributes:
        first_reported_ns: when it first did.
        last_absent_ns: when it last told that it wasn't so.
    """

    first_reported_ns: int
    last_absent_ns: int


class ResolutionTime(NamedTuple):
    """When words are put together.

    Attributes:
        at: now.
        confirmed_at: tells when a source last stood by its claims.
        previously_confirmed_at: tells when a source last stood by the claims that it made before
            those.
        active_sources: the sources whose claims stand.
    """

    at: Instant
    confirmed_at: ConfirmedAt
    previously_confirmed_at: ConfirmedAt
    active_sources: Set[str]


class PodIdentities:
    """Puts together words that lack a pod's name or its uid.

    Attributes:
        pending_sources: sources of words that may be of one pod, once the sources have told them
            again.
    """

    def __init__(self) -> None:
        self.pending_sources: frozenset[str] = frozenset()
        self._names_by_uid: dict[str, _KnownName] = {}
        self._listed_names: dict[PodName, _ListedName] = {}
        self._report_times: dict[tuple[ClaimSlot, PodName | str, DeviceIds], _ReportTimes] = {}
        self._first_match_ns: dict[tuple[PodName, str], int] = {}
        self._runtime_pairs: dict[tuple[PodName, str], int] = {}

    def referred_to(self, pod_name: PodName, uid: str, moment: Instant) -> bool:
        """Whether a name meant a pod at a moment, as far as lists and checkpoints tell."""
        known = self._listed_names.get(pod_name)
        if known is None or known.pod.uid != uid:
            return False
        return known.pod.from_ns <= moment.mono_ns

    def complete(
        self,
        resolved: ResolvedClaims,
        devices: DeviceIndex,
        running: Iterable[tuple[PodName, str]],
        moment: ResolutionTime,
        *,
        complete: bool,
    ) -> None:
        """Complete all words, as far as that can be done, and drop those that are of nobody.

        Args:
            resolved: the words.
            devices: the devices of the node.
            running: names and uids of pods that the runtime has containers of.
            moment: when.
            complete: all pods that hold something are named by some source.
        """
        words = [*resolved.claims, *resolved.ambiguous]
        told = collect_partial(words)
        self._collect_stated(told, words, running, moment.at)
        stated = {uid for uids in told.stated.values() for uid in uids}
        chosen = self._select_pods(told, stated, moment)
        self._store(told, chosen, moment)
        if all(word.subject.pod and word.subject.uid for word in words):
            return
        listed = {
            (slot[2], text)
            for slots in told.listed.values()
            for slot, several in slots.items()
            for ids in several
            for text in ids
        }

        def completed(words: Iterable[ResolvedClaim]) -> Iterator[ResolvedClaim]:
            for word in words:
                done = self._complete(word, chosen, stated)
                if done.subject.pod:
                    yield done
                elif (left := without_listed_ids(done, listed, devices)) is None:
                    continue
                elif not complete or left.evidence <= Evidence.RUNTIME_ENV:
                    yield self._with_remembered_name(left)
                # Else it is gone: the checkpoint keeps such pods until it is written anew.

        resolved.claims, resolved.ambiguous = (
            [*completed(resolved.claims)],
            [*completed(resolved.ambiguous)],
        )

    def _collect_stated(
        self,
        partial: PartialClaims,
        resolved_claims: Iterable[ResolvedClaim],
        running: Iterable[tuple[PodName, str]],
        at: Instant,
    ) -> None:
        """Find out which pairs are stated at once."""
        for word in resolved_claims:
            subject = word.subject
            if subject.pod and subject.uid:
                partial.stated.setdefault(pod_name_of(word), {})[subject.uid] = _ALWAYS
        begun = bool(self._runtime_pairs)
        self._runtime_pairs = {
            pair: self._runtime_pairs.get(pair, at.mono_ns if begun else _ALWAYS)
            for pair in running
        }
        for (place, uid), since in self._runtime_pairs.items():
            partial.stated.setdefault(place, {}).setdefault(uid, since)

    def _match_names(
        self, partial: PartialClaims, stated: Set[str], moment: ResolutionTime
    ) -> tuple[dict[PodName, dict[str, int | None]], dict[PodName, set[str]], dict[PodName, int]]:
        """Compare names that are listed with uids that are told.

        Returns:
            By name: the uids that may be its pod's, each with the moment from which on it is known
                to be, or None where it isn't known to be; the sources that told of both; since when
                the name has been listed as it is.
        """
        since: dict[tuple[ClaimSlot, PodName | str, DeviceIds], _ReportTimes] = {}
        said = moment.confirmed_at
        begun: dict[PodName, int] = {}
        by_ids: dict[tuple[str, str, DeviceIds], dict[PodName, list[tuple[ClaimSlot, int]]]] = {}
        for place, slots in partial.listed.items():
            for slot, several in slots.items():
                for ids in several:
                    ns = self._first_report(since, (slot, place, ids), moment).first_reported_ns
                    begun[place] = min(begun.get(place, ns), ns)
                    of_ids = by_ids.setdefault((slot[1], slot[2], ids), {})
                    of_ids.setdefault(place, []).append((slot, ns))
        candidates: dict[PodName, dict[str, int | None]] = {}
        sources: dict[PodName, set[str]] = {}
        met: dict[tuple[PodName, str], int] = {}
        for uid, words in partial.unnamed.items():
            for word in words:
                slot, ids = slot_of(word), ids_of(word)
                its = self._first_report(since, (slot, uid, ids), moment)
                of_ids = by_ids.get((slot[1], slot[2], ids), {})
                if len(of_ids) != 1 or uid in stated:
                    continue
                [(place, listing)] = of_ids.items()
                if place in partial.stated or not self._may_have_name(uid, place):
                    continue
                uids = candidates.setdefault(place, {})
                uids.setdefault(uid, None)
                for other, listed_ns in listing:
                    times = _ns(said(other[0])), _ns(said(slot[0]))
                    if self._was_listed_between(met, (place, uid), its.first_reported_ns, *times):
                        # It may have been there before, if that wasn't told otherwise meanwhile.
                        begin = (
                            listed_ns if its.last_absent_ns < listed_ns else its.first_reported_ns
                        )
                        before = uids[uid]
                        uids[uid] = begin if before is None else min(begin, before)
                    sources.setdefault(place, set()).update({slot[0], other[0]})
        self._report_times, self._first_match_ns = since, met
        return candidates, sources, begun

    def _select_pods(
        self, partial: PartialClaims, stated: Set[str], moment: ResolutionTime
    ) -> dict[PodName, _PodReference]:
        """Return the pod that each name means now, where that is known."""
        candidates, sources, begun = self._match_names(partial, stated, moment)
        of_uid = Counter(uid for uids in partial.stated.values() for uid in uids)
        of_uid.update(uid for uids in candidates.values() for uid in uids)
        chosen: dict[PodName, _PodReference] = {}
        waiting: set[str] = set()
        for place in {**partial.listed, **partial.stated}:
            its_uids: Mapping[str, int | None]
            its_uids = partial.stated.get(place) or candidates.get(place, {})
            now: _PodReference | None = None
            for uid, begin_ns in its_uids.items():
                if len(its_uids) > 1 or of_uid[uid] > 1:
                    continue
                if begin_ns is None:
                    waiting |= sources[place]
                else:
                    now = _PodReference(uid, max(begin_ns, begun.get(place, _ALWAYS)))
            found = self._with_previous(
                place, partial.listed.get(place, {}), now, moment.confirmed_at
            )
            if found is not None:
                chosen[place] = found
        self.pending_sources = frozenset(waiting)
        return chosen

    def _with_previous(
        self,
        pod_name: PodName,
        slots: Mapping[ClaimSlot, frozenset[DeviceIds]],
        now: _PodReference | None,
        confirmed: ConfirmedAt,
    ) -> _PodReference | None:
        """Return the pod that a name means, by what is told now and what is remembered."""
        known = self._listed_names.get(pod_name)
        if known is None or not known.is_unchanged(slots):
            return now
        before = known.pod
        if now is None:
            return before
        if now.uid == before.uid:
            return now if now.from_ns < before.from_ns else before
        # What was listed before the other pod was told of is about the one before.
        listed_ns = max(_ns(confirmed(slot[0])) for slot in slots)
        return now if listed_ns >= now.from_ns else before

    def _first_report(
        self,
        since: dict[tuple[ClaimSlot, PodName | str, DeviceIds], _ReportTimes],
        key: tuple[ClaimSlot, PodName | str, DeviceIds],
        moment: ResolutionTime,
    ) -> _ReportTimes:
        """Note since when something is told."""
        source = key[0][0]
        new = _ReportTimes(
            _ns(moment.confirmed_at(source)), _ns(moment.previously_confirmed_at(source))
        )
        since[key] = self._report_times.get(key, new)
        return since[key]

    def _was_listed_between(
        self,
        met: dict[tuple[PodName, str], int],
        pair: tuple[PodName, str],
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
        if (first := self._first_match_ns.get(pair)) is None and listed_ns >= since_ns:
            first = listed_ns
        if first is None:
            return False
        met[pair] = min(first, met.get(pair, first))
        return kept_ns >= first

    def _may_have_name(self, uid: str, pod_name: PodName) -> bool:
        bond = self._names_by_uid.get(uid)
        return bond is None or bond.name == pod_name

    def _store(
        self,
        partial: PartialClaims,
        chosen: Mapping[PodName, _PodReference],
        moment: ResolutionTime,
    ) -> None:
        bonds, now_ns = self._names_by_uid, moment.at.mono_ns

        def tie(uid: str, place: PodName, *, certain: bool) -> None:
            before = bonds.pop(uid, None)
            if before is not None and (before.is_stated or not certain):
                place, certain = before.name, before.is_stated
            bonds[uid] = _KnownName(place, certain, now_ns)

        for place, uids in partial.stated.items():
            for uid in uids:
                if place in partial.listed or uid in partial.unnamed or uid in bonds:
                    tie(uid, place, certain=True)
        for place, meant in chosen.items():
            tie(meant.uid, place, certain=False)
        for uid in partial.unnamed:
            if uid in bonds:
                tie(uid, bonds[uid].name, certain=False)
        while bonds:
            oldest = next(iter(bonds))
            if bonds[oldest].seen_ns + RETENTION_NS > now_ns and len(bonds) <= MAX_PAIRS:
                break
            del bonds[oldest]
        names = {
            place: _ListedName(chosen[place], slots)
            for place, slots in partial.listed.items()
            if place in chosen
        }
        for place, known in self._listed_names.items():
            # Of a source that is silent nothing is known that would end it.
            silent = all(slot[0] not in moment.active_sources for slot in known.ids)
            if place not in partial.listed and silent and known.pod.uid in bonds:
                names[place] = known
        self._listed_names = names

    def _complete(
        self, resolved: ResolvedClaim, chosen: Mapping[PodName, _PodReference], stated: Set[str]
    ) -> ResolvedClaim:
        subject = resolved.subject
        if not subject.pod:
            bond = self._names_by_uid.get(subject.uid)
            meant = chosen.get(bond.name) if bond is not None else None
            listed = meant is not None and meant.uid == subject.uid
            if bond is None or not (listed or subject.uid in stated):
                return resolved
            named = replace(subject, namespace=bond.name[0], pod=bond.name[1])
        elif not subject.uid and (found := chosen.get(pod_name_of(resolved))) is not None:
            if not self._may_have_name(found.uid, pod_name_of(resolved)):
                return resolved
            named = replace(subject, uid=found.uid)
        else:
            return resolved
        return resolved._replace(subject=named)

    def _with_remembered_name(self, resolved: ResolvedClaim) -> ResolvedClaim:
        bond = self._names_by_uid.get(resolved.subject.uid)
        if bond is None:
            return resolved
        namespace, pod = bond.name
        return resolved._replace(subject=replace(resolved.subject, namespace=namespace, pod=pod))


def _ns(when: Instant | None) -> int:
    return _ALWAYS if when is None else when.mono_ns
