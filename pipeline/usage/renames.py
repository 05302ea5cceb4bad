"""Renaming of containers when a missing part of their name becomes known.

The usage of the incomplete name continues under the full name, in one account and one holding. If
both names have an account, the two are merged. Totals do not change.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from pipeline.model import Instant, PodInfo
from pipeline.usage.apportionment import known_values, sum_known
from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.holder_timeline import HolderShare, HolderTimeline
from pipeline.usage.holding import HoldingAccount, count_xid
from pipeline.usage.holding_finalizer import HoldingFinalizer
from pipeline.usage.interval_samples import ContainerName, ProcessSample

_Renamed: TypeAlias = tuple[ContainerName, ContainerName]

NameReferredTo: TypeAlias = Callable[[ContainerName, Instant], bool]
"""Returns whether the pod name of a container meant the pod with its uid at a moment."""


def never_referred(_name: ContainerName, _moment: Instant) -> bool:
    """Return False: it is unknown what a name meant before."""
    return False


def partial_names(
    name: ContainerName, others: Collection[ContainerName]
) -> Iterator[ContainerName]:
    """Yield the names that a container may have had while a part of its name was missing.

    Args:
        name: the container, with its pod's name and uid.
        others: all containers that are known now, including this one.
    """
    namespace, pod, container, uid = name
    yield (namespace, pod, container, "")
    if sum(other[3] == uid for other in others) == 1:
        yield ("", "", container, uid)
        yield ("", "", "", uid)


class IdentityCompletion:
    """Finds containers of one device's account whose full name is known now, and renames them.

    Args:
        timeline: the holders of the device.
        accounts: the containers in the account.
        finalizer: holds pending usage, which is renamed too.
    """

    def __init__(
        self, timeline: HolderTimeline, accounts: ContainerAccounts, finalizer: HoldingFinalizer
    ) -> None:
        self._timeline = timeline
        self._containers = accounts
        self._finalizer = finalizer

    @property
    def unnamed_containers(self) -> list[ContainerName]:
        """The containers whose pod's uid is known, but not its name."""
        return [one.name for one in self._containers if one.name[3] and not one.has_full_identity]

    def match_holders(
        self, held: Sequence[HolderShare], referred_to: NameReferredTo
    ) -> list[_Renamed]:
        """Rename containers that are among the new holders.

        Args:
            held: the holders from now on.
            referred_to: returns whether a pod's name meant that pod before its uid was known.

        Returns:
            Old and new name of each renamed container.
        """
        if not self._timeline.incomplete and all(
            entry.has_full_identity for entry in self._containers
        ):
            return []
        names = [one.container for one in held]
        found = [self._match(one.container, names, one.pod, referred_to) for one in held]
        return [one for several in found for one in several]

    def match_processes(self, processes: Iterable[ProcessSample]) -> list[_Renamed]:
        """Rename containers whose processes were seen; return the same as `match_holders`."""
        nameless = self.unnamed_containers
        if not nameless:
            return []
        pods = {one.container: one.pod for one in processes if one.container is not None}
        found: list[_Renamed] = []
        for name in sorted(pods):
            for before in nameless:
                if name[3] == before[3]:
                    found += self.set_container_name(before, name, pods[name], seen_together=pods)
        return found

    def set_container_name(
        self,
        before: ContainerName,
        name: ContainerName,
        pod: PodInfo | None,
        seen_together: Collection[ContainerName] = (),
    ) -> list[_Renamed]:
        """Rename an unnamed container, if the new name is complete and unambiguous.

        Args:
            before: one of `unnamed_containers`.
            name: the container, as far as it is known.
            pod: what is known of its pod.
            seen_together: containers seen at the same time; `before` may mean one of them.

        Returns:
            The same as `match_holders`.
        """
        last = self._timeline.last
        held = [one.container for one in last.held] if last is not None else []
        others = {
            name,
            *(one for one in seen_together if one[1] and one[3]),
            *(one.name for one in self._containers if one.has_full_identity),
            *held,
        }
        if before in held or before not in partial_names(name, others):
            return []
        return self._match(name, sorted(others), pod, never_referred)

    def complete_pod_identity(
        self, pod_name: tuple[str, str], pod: PodInfo, referred_to: NameReferredTo
    ) -> list[_Renamed]:
        """Rename containers that have a pod's name and no uid, and hold nothing now.

        Args:
            pod_name: the pod's namespace and name.
            pod: what is known of the pod.
            referred_to: returns whether the name meant that pod at an earlier moment.

        Returns:
            The same as `match_holders`.
        """
        last = self._timeline.last
        held = [one.container for one in last.held] if last is not None else []
        unsure = {
            *self._timeline.incomplete,
            *(one.name for one in self._containers if not one.has_full_identity),
        }
        found: list[_Renamed] = []
        for before in sorted(unsure):
            if before[:2] == pod_name and not before[3]:
                found += self._match((*before[:3], pod.uid), held, pod, referred_to)
        return found

    def _match(
        self,
        name: ContainerName,
        names: Collection[ContainerName],
        pod: PodInfo | None,
        referred_to: NameReferredTo,
    ) -> list[_Renamed]:
        found: list[_Renamed] = []
        if not (name[1] and name[3]):
            return found
        for before in partial_names(name, names):
            if before in names:
                continue

            def same(moment: Instant, before: ContainerName = before) -> bool:
                return before[3] != "" or referred_to(name, moment)

            if before in self._timeline.incomplete:
                self._timeline.rename(before, name, same)
            entry = self._containers.get(before)
            if entry is not None and same(entry.start):
                merged = merge_containers(self._containers, before, name, pod)
                self._finalizer.rename(before, name, merged)
                found.append((before, name))
        return found


def merge_containers(
    accounts: ContainerAccounts, before: ContainerName, name: ContainerName, pod: PodInfo | None
) -> dict[HoldingAccount, HoldingAccount]:
    """Rename a container in an account, and merge it with the one that has the new name.

    Args:
        accounts: the containers in the account.
        before: the old name, which is in the account.
        name: the new name.
        pod: what is known of its pod.

    Returns:
        Merged holdings, each with the holding that replaces it.
    """
    entry = accounts.rename(before, name)
    if pod is not None:
        entry.pod = pod
    merged: dict[HoldingAccount, HoldingAccount] = {}
    if (other := accounts.get(name)) is None:
        accounts.put(entry)
        return merged
    for each, more in ((other, entry), (entry, other)):
        if each.unseen and not more.unseen:
            _mark_seen(each, more)
    _merge(other, entry)
    holdings: list[HoldingAccount] = []
    for one in sorted(
        [*other.open_holdings(), *entry.open_holdings()], key=lambda one: one.start.mono_ns
    ):
        last = holdings[-1] if holdings else None
        if last is None or (last.end is not None and last.end.mono_ns <= one.start.mono_ns):
            holdings.append(one)
        else:
            _merge_holding(last, one)
            merged[one] = last
    other.running = next((one for one in holdings if one.end is None), None)
    other.ending = [one for one in holdings if one.end is not None]
    if other.running is not None:
        other.ended = None
    other.absorbed += (entry.id, *entry.absorbed, *(one.id for one in merged))
    return merged


def _mark_seen(account: ContainerAccount, more: ContainerAccount) -> None:
    """Update an unseen container with the presence that was recorded under another name."""
    if more.ended is None:
        account.start_holding(more.start)
    elif account.running is None or not more.ending:
        # Holdings that were reported since then are final.
        account.end_at_last_seen(more.ended)
    else:
        account.running.rewind_to_last_seen(more.ended.mono_ns)
        account.end(more.ended)


def _merge(account: ContainerAccount, more: ContainerAccount) -> None:
    account.start = min(account.start, more.start)
    ends = known_values(account.ended, more.ended)
    account.ended = max(ends) if len(ends) == 2 else None
    account.held_ns += more.held_ns
    account.busy_ns = sum_known(account.busy_ns, more.busy_ns)
    account.energy_mj = sum_known(account.energy_mj, more.energy_mj)
    account.memory_bytes = sum_known(account.memory_bytes, more.memory_bytes)
    _add_xids(account.xids, more.xids.items())
    account.used_from_ns = min(known_values(account.used_from_ns, more.used_from_ns), default=None)
    account.used_to_ns = max(known_values(account.used_to_ns, more.used_to_ns), default=None)
    account.has_processes |= more.has_processes
    account.unseen &= more.unseen
    account.concealed |= more.concealed
    account.last_finalized = max(
        known_values(account.last_finalized, more.last_finalized), default=None
    )


def _merge_holding(one: HoldingAccount, more: HoldingAccount) -> None:
    """Add a holding to one that began no later and overlaps it."""
    # The container was last seen when either of the two was.
    last = max(one, more, key=lambda each: each.seen_ns)
    one.unseen_counted_ns, one.unseen_gap_ns = last.unseen_counted_ns, last.unseen_gap_ns
    counted_ns = 0
    if more.until_ns > max(one.until_ns, more.start.mono_ns):
        counted_ns = more.elapsed_ns - one.elapsed_ns
        one.counted_ns += counted_ns
        one.gap_ns += more.until_ns - one.until_ns - counted_ns
        one.until_ns, one.elapsed_ns = more.until_ns, more.elapsed_ns
    if one.end is not None:
        one.end = None if more.end is None else max(one.end, more.end)
    if not one.source:
        one.source, one.evidence = more.source, more.evidence
    one.held_ns += more.held_ns
    one.busy_ns = sum_known(one.busy_ns, more.busy_ns)
    one.energy_mj = sum_known(one.energy_mj, more.energy_mj)
    one.memory_bytes = sum_known(one.memory_bytes, more.memory_bytes)
    one.memory_byte_ns += more.memory_byte_ns
    # A sample that shows the memory of one holding shows that of both.
    one.memory_ns = max(one.memory_ns + min(more.memory_ns, counted_ns), more.memory_ns)
    peaks = known_values(one.memory_peak_bytes, more.memory_peak_bytes, one.memory_bytes)
    if peaks and one.memory_ns:
        # If both had memory at the same time, neither peak is the peak of the sum.
        peaks.append(one.memory_byte_ns // one.memory_ns)
    one.memory_peak_bytes = max(peaks, default=None)
    one.busy_time_ns = max(one.busy_time_ns, more.busy_time_ns)
    one.peak_ppm = max(known_values(one.peak_ppm, more.peak_ppm), default=None)
    one.concealed |= more.concealed
    _add_xids(one.xids, more.xids.items())


def _add_xids(xids: dict[int, int], more: Iterable[tuple[int, int]]) -> None:
    for code, number in more:
        for _ in range(number):
            count_xid(xids, code)
