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
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from pipeline.join.claim_resolution import (
    ConfirmedAt,
    ResolutionTime,
    ResolvedClaim,
    ResolvedClaims,
)
from pipeline.join.device_index import DeviceIndex
from pipeline.join.incomplete_pod_identity import (
    ClaimSlot,
    DeviceIds,
    IncompleteClaims,
    PodName,
    collect_partial,
    ids_of,
    pod_name_of,
    slot_of,
    without_listed_ids,
)
from pipeline.model import NS, Evidence, Instant

RETENTION_NS: Final = 600 * NS
"""How long a pair is remembered after the last report of its name or its uid."""

MAX_PAIRS: Final = 8192
"""How many pairs are remembered: those that were reported last."""

_ALWAYS: Final = -(1 << 63)


class _KnownName(NamedTuple):
    """The pod name of a uid.

    Attributes:
        name: namespace and name.
        is_stated: whether a source reported name and uid together.
        seen_ns: when the name or the uid was last reported.
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


_ListedIds: TypeAlias = Mapping[ClaimSlot, frozenset[DeviceIds]]
"""The ids that the kubelet lists with a pod name."""

_ReportKey: TypeAlias = tuple[ClaimSlot, PodName | str, DeviceIds]
"""Slot, name or uid, and ids that a source reports together."""


class _ReportTimes(NamedTuple):
    """Since when a source reports something.

    Attributes:
        first_reported_ns: when the source first reported it.
        last_absent_ns: when its last report without it was confirmed.
    """

    first_reported_ns: int
    last_absent_ns: int


class PodIdentities:
    """Completes claims in which a pod's name or uid is missing; drops claims of pods that are gone.

    Attributes:
        pending_sources: sources whose claims may be about one pod: one gave the name, another the
            uid. Their next reports can confirm it.
    """

    def __init__(self) -> None:
        self.pending_sources: frozenset[str] = frozenset()
        self._names_by_uid: dict[str, _KnownName] = {}
        self._listed_names: dict[PodName, tuple[_PodReference, _ListedIds]] = {}
        self._report_times: dict[_ReportKey, _ReportTimes] = {}
        self._first_match_ns: dict[tuple[PodName, str], int] = {}
        self._runtime_pairs: dict[tuple[PodName, str], int] = {}

    def referred_to(self, pod_name: PodName, uid: str, moment: Instant) -> bool:
        """Whether a name meant a pod at a moment, by the kubelet's list and checkpoint."""
        known, _ = self._listed_names.get(pod_name, (None, {}))
        return known is not None and known.uid == uid and known.from_ns <= moment.mono_ns

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
            complete: whether a source names all pods that hold devices.
        """
        claims = [*resolved.claims, *resolved.ambiguous]
        partial = collect_partial(claims)
        self._collect_stated(partial, claims, running, moment.at)
        stated = {uid for uids in partial.stated.values() for uid in uids}
        chosen = self._select_pods(partial, stated, moment)
        self._store(partial, chosen, moment)
        if all(claim.subject.pod and claim.subject.uid for claim in claims):
            return
        listed = partial.listed_ids()

        def completed(claims: Iterable[ResolvedClaim]) -> Iterator[ResolvedClaim]:
            for claim in claims:
                claim = self._complete(claim, chosen, stated)  # noqa: PLW2901
                if claim.subject.pod:
                    yield claim
                elif (rest := without_listed_ids(claim, listed, devices)) is None:
                    continue
                elif not complete or rest.evidence <= Evidence.RUNTIME_ENV:
                    yield self._with_remembered_name(rest)
                # Else the pod is gone: the checkpoint keeps it until the kubelet writes it again.

        resolved.claims = [*completed(resolved.claims)]
        resolved.ambiguous = [*completed(resolved.ambiguous)]

    def _collect_stated(
        self,
        partial: IncompleteClaims,
        resolved_claims: Iterable[ResolvedClaim],
        running: Iterable[tuple[PodName, str]],
        at: Instant,
    ) -> None:
        """Add the pairs of name and uid that claims and running containers state."""
        for claim in resolved_claims:
            subject = claim.subject
            if subject.pod and subject.uid:
                partial.stated.setdefault(pod_name_of(claim), {})[subject.uid] = _ALWAYS
        has_pairs = bool(self._runtime_pairs)
        self._runtime_pairs = {
            pair: self._runtime_pairs.get(pair, at.mono_ns if has_pairs else _ALWAYS)
            for pair in running
        }
        for (pod_name, uid), since in self._runtime_pairs.items():
            partial.stated.setdefault(pod_name, {}).setdefault(uid, since)

    def _match_names(
        self, partial: IncompleteClaims, stated: Set[str], moment: ResolutionTime
    ) -> tuple[dict[PodName, dict[str, int | None]], dict[PodName, set[str]], dict[PodName, int]]:
        """Match listed names with uids that have no name.

        Returns:
            By name: the uids that may be of its pod, each with the time since which it is known to
            be, or None where it is not known; the sources that reported both; since when the name
            has been listed with its ids.
        """
        since: dict[_ReportKey, _ReportTimes] = {}
        confirmed_at = moment.confirmed_at
        listed_since: dict[PodName, int] = {}
        by_ids: dict[tuple[str, str, DeviceIds], dict[PodName, list[tuple[ClaimSlot, int]]]] = {}
        for pod_name, slots in partial.listed.items():
            for slot, several in slots.items():
                for ids in several:
                    ns = self._first_report(since, (slot, pod_name, ids), moment).first_reported_ns
                    listed_since[pod_name] = min(listed_since.get(pod_name, ns), ns)
                    names = by_ids.setdefault((slot[1], slot[2], ids), {})
                    names.setdefault(pod_name, []).append((slot, ns))
        candidates: dict[PodName, dict[str, int | None]] = {}
        sources: dict[PodName, set[str]] = {}
        first_matches: dict[tuple[PodName, str], int] = {}
        for uid, claims in partial.unnamed.items():
            for claim in claims:
                slot, ids = slot_of(claim), ids_of(claim)
                reported = self._first_report(since, (slot, uid, ids), moment)
                names = by_ids.get((slot[1], slot[2], ids), {})
                if len(names) != 1 or uid in stated:
                    continue
                [(pod_name, listing)] = names.items()
                if pod_name in partial.stated or not self._may_have_name(uid, pod_name):
                    continue
                uids = candidates.setdefault(pod_name, {})
                uids.setdefault(uid, None)
                for other, listed_ns in listing:
                    times = _ns(confirmed_at(other[0])), _ns(confirmed_at(slot[0]))
                    if self._was_listed_between(
                        first_matches, (pod_name, uid), reported.first_reported_ns, *times
                    ):
                        # The name may be older than the first report of the uid, if no report
                        # without the uid came in between.
                        is_older = reported.last_absent_ns < listed_ns
                        from_ns = listed_ns if is_older else reported.first_reported_ns
                        earlier = uids[uid]
                        uids[uid] = from_ns if earlier is None else min(from_ns, earlier)
                    sources.setdefault(pod_name, set()).update({slot[0], other[0]})
        self._report_times, self._first_match_ns = since, first_matches
        return candidates, sources, listed_since

    def _select_pods(
        self, partial: IncompleteClaims, stated: Set[str], moment: ResolutionTime
    ) -> dict[PodName, _PodReference]:
        """Return the pod that each name means now, where it is known."""
        candidates, sources, listed_since = self._match_names(partial, stated, moment)
        of_uid = Counter(uid for uids in partial.stated.values() for uid in uids)
        of_uid.update(uid for uids in candidates.values() for uid in uids)
        chosen: dict[PodName, _PodReference] = {}
        pending: set[str] = set()
        for pod_name in {**partial.listed, **partial.stated}:
            uids: Mapping[str, int | None] = partial.stated.get(pod_name) or candidates.get(
                pod_name, {}
            )
            now: _PodReference | None = None
            for uid, from_ns in uids.items():
                if len(uids) > 1 or of_uid[uid] > 1:
                    continue
                if from_ns is None:
                    pending |= sources[pod_name]
                else:
                    now = _PodReference(uid, max(from_ns, listed_since.get(pod_name, _ALWAYS)))
            reference = self._with_previous(
                pod_name, partial.listed.get(pod_name, {}), now, moment.confirmed_at
            )
            if reference is not None:
                chosen[pod_name] = reference
        self.pending_sources = frozenset(pending)
        return chosen

    def _with_previous(
        self,
        pod_name: PodName,
        slots: _ListedIds,
        now: _PodReference | None,
        confirmed: ConfirmedAt,
    ) -> _PodReference | None:
        """Return the pod that a name means, by present reports and by what is remembered."""
        before, ids = self._listed_names.get(pod_name, (None, {}))
        common = ids.keys() & slots.keys()
        # The ids of a pod never change.
        if before is None or not common or any(ids[slot] != slots[slot] for slot in common):
            return now
        if now is None:
            return before
        if now.uid == before.uid:
            return now if now.from_ns < before.from_ns else before
        # A list from before the first report of the new pod is about the pod before it.
        listed_ns = max(_ns(confirmed(slot[0])) for slot in slots)
        return now if listed_ns >= now.from_ns else before

    def _first_report(
        self, since: dict[_ReportKey, _ReportTimes], key: _ReportKey, moment: ResolutionTime
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
        first_matches: dict[tuple[PodName, str], int],
        pair: tuple[PodName, str],
        since_ns: int,
        listed_ns: int,
        kept_ns: int,
    ) -> bool:
        """Whether a name was listed at a moment between two reports of a uid.

        A uid is never reused, so that its pod existed between the two reports. The name may have
        been that of another pod.

        Args:
            first_matches: gets the first moment at which the name was listed after the uid.
            pair: the name and the uid.
            since_ns: time of the first report of the uid.
            listed_ns: time of the last report of the name.
            kept_ns: time of the last report of the uid.
        """
        if (first := self._first_match_ns.get(pair)) is None and listed_ns >= since_ns:
            first = listed_ns
        if first is None:
            return False
        first_matches[pair] = min(first, first_matches.get(pair, first))
        return kept_ns >= first

    def _may_have_name(self, uid: str, pod_name: PodName) -> bool:
        known = self._names_by_uid.get(uid)
        return known is None or known.name == pod_name

    def _store(
        self,
        partial: IncompleteClaims,
        chosen: Mapping[PodName, _PodReference],
        moment: ResolutionTime,
    ) -> None:
        """Remember the pairs of name and uid, and forget old ones."""
        names_by_uid, now_ns = self._names_by_uid, moment.at.mono_ns

        def remember(uid: str, pod_name: PodName, *, certain: bool) -> None:
            before = names_by_uid.pop(uid, None)
            if before is not None and (before.is_stated or not certain):
                pod_name, certain = before.name, before.is_stated
            names_by_uid[uid] = _KnownName(pod_name, certain, now_ns)

        for pod_name, uids in partial.stated.items():
            for uid in uids:
                if pod_name in partial.listed or uid in partial.unnamed or uid in names_by_uid:
                    remember(uid, pod_name, certain=True)
        for pod_name, reference in chosen.items():
            remember(reference.uid, pod_name, certain=False)
        for uid in partial.unnamed:
            if uid in names_by_uid:
                remember(uid, names_by_uid[uid].name, certain=False)
        while names_by_uid:
            oldest = next(iter(names_by_uid))
            is_recent = names_by_uid[oldest].seen_ns + RETENTION_NS > now_ns
            if is_recent and len(names_by_uid) <= MAX_PAIRS:
                break
            del names_by_uid[oldest]
        names: dict[PodName, tuple[_PodReference, _ListedIds]] = {
            pod_name: (chosen[pod_name], slots)
            for pod_name, slots in partial.listed.items()
            if pod_name in chosen
        }
        for pod_name, (pod, ids) in self._listed_names.items():
            # A silent source cannot report that the name has another pod.
            silent = all(slot[0] not in moment.active_sources for slot in ids)
            if pod_name not in partial.listed and silent and pod.uid in names_by_uid:
                names[pod_name] = (pod, ids)
        self._listed_names = names

    def _complete(
        self, resolved: ResolvedClaim, chosen: Mapping[PodName, _PodReference], stated: Set[str]
    ) -> ResolvedClaim:
        """Return a claim with the missing name or uid of its pod, as far as known."""
        subject, pod_name = resolved.subject, pod_name_of(resolved)
        if not subject.pod:
            known = self._names_by_uid.get(subject.uid)
            reference = chosen.get(known.name) if known is not None else None
            listed = reference is not None and reference.uid == subject.uid
            return (
                self._with_remembered_name(resolved)
                if listed or subject.uid in stated
                else resolved
            )
        found = chosen.get(pod_name)
        if subject.uid or found is None or not self._may_have_name(found.uid, pod_name):
            return resolved
        return resolved._replace(subject=replace(subject, uid=found.uid))

    def _with_remembered_name(self, resolved: ResolvedClaim) -> ResolvedClaim:
        known = self._names_by_uid.get(resolved.subject.uid)
        if known is None:
            return resolved
        namespace, pod = known.name
        return resolved._replace(subject=replace(resolved.subject, namespace=namespace, pod=pod))


def _ns(when: Instant | None) -> int:
    return _ALWAYS if when is None else when.mono_ns
