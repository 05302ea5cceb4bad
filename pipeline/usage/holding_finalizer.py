"""Finalizing of ended holdings: each one is reported once, when nothing can be added any more."""

from collections.abc import Mapping

from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.ended_holdings import NEVER, EndedHoldings
from pipeline.usage.holding import HoldingAccount
from pipeline.usage.interval_samples import ContainerName, IntervalUsage


class HoldingFinalizer:
    """Finalizes the holdings of one device.

    Attributes:
        pending: the usage of the time whose energy is not known yet.

    Args:
        device: its uuid.
        accounts: the containers and their holdings.
        ended: receives final holdings.
    """

    def __init__(self, device: str, accounts: ContainerAccounts, ended: EndedHoldings) -> None:
        self.pending = IntervalUsage()
        self._device = device
        self._containers = accounts
        self._ended = ended

    def take_pending(self) -> IntervalUsage:
        """Return and clear the pending usage."""
        interval, self.pending = self.pending, IntervalUsage()
        return interval

    def finalize_sampled(self, at_ns: int, now_ns: int) -> None:
        """Finalize holdings that ended before the last sample and have no energy pending.

        Args:
            at_ns: when the last sample was taken.
            now_ns: now, by the monotonic clock.
        """
        for entry in self._containers:
            for one in [*entry.ending]:
                if one.end and one.end.mono_ns <= at_ns and one not in self.pending.holding_times:
                    self._finalize(entry, one, now_ns)

    def finalize_overdue(self, good_for_ns: int, now_ns: int) -> bool:
        """Finalize holdings that ended more than `good_for_ns` ago; return whether any did."""
        found = False
        for entry in self._containers:
            for one in [*entry.ending]:
                if one.end and one.end.mono_ns + good_for_ns < now_ns:
                    self._finalize(entry, one, now_ns)
                    found = True
        return found

    def due_ns(self, good_for_ns: int) -> int:
        """Return the last time at which none is overdue."""
        ends = [e.ending[0].end for e in self._containers if e.ending]
        return min((end.mono_ns + good_for_ns for end in ends if end), default=NEVER)

    def finalize_ended(self, now_ns: int) -> None:
        """Finalize all ended holdings, because there may be no further sample."""
        for entry in self._containers:
            self.finalize_container(entry, now_ns)

    def finalize_container(self, account: ContainerAccount, now_ns: int) -> None:
        """Finalize all ended holdings of a container."""
        for one in [*account.ending]:
            self._finalize(account, one, now_ns)

    def release_container(self, account: ContainerAccount, now_ns: int) -> None:
        """Finalize the holdings of a removed container, and make its pending usage unattributed."""
        self.finalize_container(account, now_ns)
        self.pending.move_to_unattributed(account.name)
        self._containers.note_removed_end(account)

    def rename(
        self,
        before: ContainerName,
        name: ContainerName,
        merged: Mapping[HoldingAccount, HoldingAccount],
    ) -> None:
        """Move the pending usage of a container to another name.

        Args:
            before: the old name.
            name: the new name.
            merged: merged holdings, each with the holding that replaces it.
        """
        pending = self.pending
        for parts in (pending.held, pending.busy or {}):
            if before in parts:
                parts[name] = parts.get(name, 0) + parts.pop(before)
        if before in pending.concealed:
            pending.concealed = pending.concealed - {before} | {name}
        for one, other in merged.items():
            if one in pending.holding_times:
                time_ns = pending.holding_times.pop(one)
                pending.holding_times[other] = max(time_ns, pending.holding_times.get(other, 0))

    def _finalize(self, account: ContainerAccount, one: HoldingAccount, now_ns: int) -> None:
        one.close_gap()
        account.ending.remove(one)
        if one.end is not None:
            account.last_finalized = (
                one.end if account.last_finalized is None else max(account.last_finalized, one.end)
            )
        if self.pending.holding_times.pop(one, None) is not None and not account.open_holdings():
            self.pending.move_to_unattributed(account.name)
        if not one.is_empty:
            self._ended.add(one.to_holding(self._device, account.subject, account.pod, 0), now_ns)
