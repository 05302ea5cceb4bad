"""Pairs of pod names and pod uids, over time.

The kubelet's list has names, its checkpoint has uids, and they are read at different times.
1. A report with both name and uid states a pair: a report of a source of pods or of containers.
2. Otherwise a name and a uid are matched by the kubelet's claims on both: the same container name,
   the same resource and exactly the same requested ids. Both must have been valid at one moment:
   the name was listed after the uid was first reported, and the uid was reported again after that.
3. A pair that was seen stays. A uid keeps its name; only a stated pair replaces a matched one. A
   name keeps its uid as long as it is listed without interruption, with the same ids, and is not
   known to have another uid.
4. No other pod holds an id that the kubelet lists under a name. Another uid with the same id is
   that of a pod that is gone, or that is not listed yet.
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
"""Returns when a source last confirmed its claims."""

RETENTION_NS: Final = 600 * NS
"""How long a pair is remembered after the last report of its name or its uid."""

MAX_PAIRS: Final = 8192
"""How many pairs are remembered: those that were reported last."""

_ALWAYS: Final = -(1 << 63)


class _KnownName(NamedTuple):
    """The pod name of a uid.

    Attributes:
        name: namespace and name.
        is_stated: a source reported name and uid together.
        seen_ns: when either was last reported.
    """

    name: PodName
    is_stated: bool
    seen_ns: int


class _PodReference(NamedTuple):
    """The pod that a name means.

    Attributes:
        uid: uid of the pod.
        from_ns: since when the name has meant this pod, as far as known.
    """

    uid: str
    from_ns: int


class _ListedName(NamedTuple):
    """A pod name in the kubelet's list, and the pod that it means.

    Attributes:
        pod: the pod.
        ids: the ids that the name was listed with.
    """

    pod: _PodReference
    ids: Mapping[ClaimSlot, frozenset[DeviceIds]]

    def is_unchanged(self, ids: Mapping[ClaimSlot, frozenset[DeviceIds]]) -> bool:
        """Whether the name is still listed with the same ids: those of a pod never change."""
        common = self.ids.keys() & ids.keys()
        return bool(common) and all(self.ids[slot] == ids[slot] for slot in common)


class _ReportTimes(NamedTuple):
    """Since when a source reports something.

    Attributes:
        first_reported_ns: when it first reported it.
        last_absent_ns: when its last report without it was confirmed.
    """

    first_reported_ns: int
    last_absent_ns: int


class ResolutionTime(NamedTuple):
    """The time of a resolution, and the times at which sources confirmed their claims.

    Attributes:
        at: now.
        confirmed_at: returns when a source last confirmed its claims.
        previously_confirmed_at: returns when a source last confirmed the claims that it made before
            its present ones.
        active_sources: the sources with valid claims.
    """

    at: Instant
    confirmed_at: ConfirmedAt
    previously_confirmed_at: ConfirmedAt
    active_sources: Set[str]


class PodIdentities:
    """Completes claims in which a pod's name or uid is missing.

    Attributes:
        pending_sources: sources of a name and a uid that may belong to one pod; another report of
            these sources can confirm it.
    """

    def __init__(self) -> None:
        self.pending_sources: frozenset[str] = frozenset()
        self._names_by_uid: dict[str, _KnownName] = {}
        self._listed_names: dict[PodName, _ListedName] = {}
        self._report_times: dict[tuple[ClaimSlot, PodName | str, DeviceIds], _ReportTimes] = {}
        self._first_match_ns: dict[tuple[PodName, str], int] = {}
        self._runtime_pairs: dict[tuple[PodName, str], int] = {}

    def referred_to(self, pod_name: PodName, uid: str, moment: Instant) -> bool:
        """Whether a name meant a pod at a moment, by the kubelet's list and checkpoint."""
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
        """Complete all claims as far as possible, and drop claims of pods that are gone.

        Args:
            resolved: the claims.
            devices: the devices of the node.
            running: names and uids of the pods of the runtime's containers.
            moment: the time.
            complete: a source names all pods that hold devices.
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
                # Else the pod is gone: the checkpoint keeps it until the kubelet writes it again.

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
        """Add the pairs of name and uid that claims and running containers state."""
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
        """Match listed names with uids that have no name.

        Returns:
            By name: the uids that may be of its pod, each with the time since which it is known to
            be, or None where it is not known; the sources that reported both; since when the name
            has been listed with its ids.
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
                        # The name may be older than the first report of the uid, if no report
                        # without the uid came in between.
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
        """Return the pod that each name means now, where it is known."""
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
        """Return the pod that a name means, by present reports and by what is remembered."""
        known = self._listed_names.get(pod_name)
        if known is None or not known.is_unchanged(slots):
            return now
        before = known.pod
        if now is None:
            return before
        if now.uid == before.uid:
            return now if now.from_ns < before.from_ns else before
        # A list from before the first report of the new pod is about the pod before it.
        listed_ns = max(_ns(confirmed(slot[0])) for slot in slots)
        return now if listed_ns >= now.from_ns else before

    def _first_report(
        self,
        since: dict[tuple[ClaimSlot, PodName | str, DeviceIds], _ReportTimes],
        key: tuple[ClaimSlot, PodName | str, DeviceIds],
        moment: ResolutionTime,
    ) -> _ReportTimes:
        """Return since when something is reported, and record it in `since`."""
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
        """Whether a name was listed at a moment between two reports of a uid.

        A uid is never reused, so that its pod existed between the two. A name may have been that of
        another pod.

        Args:
            met: gets the first moment at which this may have been so.
            pair: the name and the uid.
            since_ns: when the uid was first reported.
            listed_ns: when the name was last listed.
            kept_ns: when the uid was last reported.
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
            # A silent source cannot report that the name has another pod.
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
