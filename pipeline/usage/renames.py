"""Renaming of containers when a missing part of their name becomes known.

The usage of the incomplete name continues under the full name, in one account and one holding. If
both names have an account, the two are merged. Totals do not change.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias, TypeVar

from pipeline.model import Instant, PodInfo
from pipeline.usage.apportionment import known_values, sum_known
from pipeline.usage.container_account import ContainerAccount
from pipeline.usage.container_accounts import ContainerAccounts
from pipeline.usage.contest import sum_contests
from pipeline.usage.holder_timeline import Holders, HolderTimeline
from pipeline.usage.holding import HoldingAccount, count_xid
from pipeline.usage.interval_samples import ContainerName, ProcessSample

_Account = TypeVar("_Account", ContainerAccount, HoldingAccount)

NameReferredTo: TypeAlias = Callable[[ContainerName, Instant], bool]
"""Returns whether the pod name of a container meant the pod with its uid at a moment."""


def never_referred(_name: ContainerName, _moment: Instant) -> bool:
    """Return False: it is unknown what a name meant before."""
    return False


def partial_names(
    name: ContainerName, others: Collection[ContainerName]
) -> Iterator[ContainerName]:
    """Yield the names that a container may have had while a part of its name was missing.

    A name without the pod's name is possible only if no other container of the pod is known.

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
        on_rename: called with the old and the new name of each renamed container.
    """

    def __init__(
        self,
        timeline: HolderTimeline,
        accounts: ContainerAccounts,
        on_rename: Callable[[ContainerName, ContainerName], None],
    ) -> None:
        self._timeline = timeline
        self._containers = accounts
        self._on_rename = on_rename

    @property
    def unnamed_containers(self) -> list[ContainerName]:
        """The containers whose pod's uid is known, but not its name."""
        return [one.name for one in self._containers if one.name[3] and not one.has_full_identity]

    def match_holders(self, held: Holders, referred_to: NameReferredTo) -> None:
        """Rename containers that are among the new holders.

        Args:
            held: the holders from now on.
            referred_to: returns whether a pod's name meant the pod with this uid at an earlier
                moment.
        """
        if self._timeline.incomplete or not all(one.has_full_identity for one in self._containers):
            for name, one in held.items():
                self._match(name, held, one.pod, referred_to)

    def match_processes(self, processes: Iterable[ProcessSample]) -> None:
        """Rename unnamed containers of pods whose processes were seen."""
        nameless = self.unnamed_containers
        if not nameless:
            return
        pods = {one.container: one.pod for one in processes if one.container is not None}
        for name in sorted(pods):
            for before in nameless:
                if name[3] == before[3]:
                    self.set_container_name(before, name, pods[name], seen_together=pods)

    def set_container_name(
        self,
        before: ContainerName,
        name: ContainerName,
        pod: PodInfo | None,
        seen_together: Collection[ContainerName] = (),
    ) -> None:
        """Rename an unnamed container, if the new name is complete and unambiguous.

        A container that holds the device now is not renamed.

        Args:
            before: one of `unnamed_containers`.
            name: the container, as far as it is known.
            pod: what is known of its pod.
            seen_together: containers seen at the same time; `before` may mean one of them.
        """
        held = self._held_now
        others = {
            name,
            *(one for one in seen_together if one[1] and one[3]),
            *(one.name for one in self._containers if one.has_full_identity),
            *held,
        }
        if before not in held and before in partial_names(name, others):
            self._match(name, sorted(others), pod, never_referred)

    def complete_pod_identity(self, pod: PodInfo, referred_to: NameReferredTo) -> bool:
        """Rename containers that have a pod's name and no uid, and hold nothing now.

        Args:
            pod: what is known of the pod.
            referred_to: returns whether the name meant this pod at an earlier moment.

        Returns:
            Whether any was renamed.
        """
        unsure = {
            *self._timeline.incomplete,
            *(one.name for one in self._containers if not one.has_full_identity),
        }
        renamed = [
            self._match((*before[:3], pod.uid), self._held_now, pod, referred_to)
            for before in sorted(unsure)
            if before[:2] == (pod.namespace, pod.name) and not before[3]
        ]
        return any(renamed)

    @property
    def _held_now(self) -> Collection[ContainerName]:
        return () if self._timeline.last is None else self._timeline.last.held

    def _match(
        self,
        name: ContainerName,
        names: Collection[ContainerName],
        pod: PodInfo | None,
        referred_to: NameReferredTo,
    ) -> bool:
        """Rename the accounts of a container's partial names; return whether there were any."""
        renamed = False
        for before in partial_names(name, names) if name[1] and name[3] else ():
            if before in names:
                continue

            def same(moment: Instant, before: ContainerName = before) -> bool:
                return before[3] != "" or referred_to(name, moment)

            if before in self._timeline.incomplete:
                self._timeline.rename(before, name, same)
            entry = self._containers.get(before)
            if entry is not None and same(entry.start):
                merged = merge_containers(self._containers, before, name, pod)
                self._containers.rename_pending(before, name, merged)
                self._on_rename(before, name)
                renamed = True
        return renamed


def merge_containers(
    accounts: ContainerAccounts, before: ContainerName, name: ContainerName, pod: PodInfo | None
) -> dict[HoldingAccount, HoldingAccount]:
    """Rename a container in an account; merge it with the one that has the new name, if any.

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
    _add_amounts(account, more)
    account.used_from_ns = min(known_values(account.used_from_ns, more.used_from_ns), default=None)
    account.used_to_ns = max(known_values(account.used_to_ns, more.used_to_ns), default=None)
    account.has_processes |= more.has_processes
    account.recent_busy_ppm = sum_known(account.recent_busy_ppm, more.recent_busy_ppm)
    account.window_busy_ns = (
        None
        if account.window_busy_ns is None or more.window_busy_ns is None
        else account.window_busy_ns + more.window_busy_ns
    )
    account.unseen &= more.unseen
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
    _add_amounts(one, more)
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


def _add_amounts(one: _Account, more: _Account) -> None:
    one.held_ns += more.held_ns
    one.busy_ns = sum_known(one.busy_ns, more.busy_ns)
    one.energy_mj = sum_known(one.energy_mj, more.energy_mj)
    one.contest = sum_contests(one.contest, more.contest)
    one.memory_bytes = sum_known(one.memory_bytes, more.memory_bytes)
    one.concealed |= more.concealed
    for code, number in more.xids.items():
        count_xid(one.xids, code, number)
