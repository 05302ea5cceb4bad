"""When a holding that has ended is told of: once nothing more is to come for it, each once."""

from collections.abc import Mapping

from pipeline.usage.container_accounts import ContainerAccount, ContainerAccounts
from pipeline.usage.ended_holdings import EndedHoldings
from pipeline.usage.holding import HoldingAccount
from pipeline.usage.interval_samples import ContainerName, IntervalUsage


class HoldingFinalizer:
    """Closes the holdings of one device.

    Attributes:
        pending: of a MIG instance, what came since its GPU's energy was last split.

    Args:
        device: its uuid.
        accounts: the containers with their holdings.
        ended: where the holdings go.
    """

    def __init__(self, device: str, accounts: ContainerAccounts, ended: EndedHoldings) -> None:
        self.pending = IntervalUsage()
        self._device = device
        self._containers = accounts
        self._ended = ended

    def add_pending(self, interval: IntervalUsage) -> None:
        """Add what an interval brought to what is pending."""
        if self.pending.time_ns:
            self.pending.append(interval)
        else:
            self.pending = interval

    def take_pending(self) -> IntervalUsage:
        """Return what is pending, once."""
        interval, self.pending = self.pending, IntervalUsage()
        return interval

    def finalize_sampled(self, at_ns: int, now_ns: int) -> None:
        """Close what a look has passed, but for what energy is still to come for.

        Args:
            at_ns: when the device was last looked at.
            now_ns: now, by the monotonic clock.
        """
        roster = self._containers
        if not roster.has_ending:
            return
        roster.has_ending = False
        for entry in roster:
            for one in [*entry.ending]:
                if one.end and one.end.mono_ns <= at_ns and one not in self.pending.holding_times:
                    self._finalize(entry, one, now_ns)
            roster.has_ending = roster.has_ending or bool(entry.ending)

    def finalize_overdue(self, good_for_ns: int, now_ns: int) -> bool:
        """Close what has waited for a look for so long; return whether there was any."""
        found = False
        for entry in self._containers if self._containers.has_ending else ():
            for one in [*entry.ending]:
                if one.end and one.end.mono_ns + good_for_ns < now_ns:
                    self._finalize(entry, one, now_ns)
                    found = True
        return found

    def due_ns(self, good_for_ns: int) -> int | None:
        """Return the last moment at which nothing has waited for so long; None if nothing waits."""
        if not self._containers.has_ending:
            return None
        ends = [e.ending[0].end for e in self._containers if e.ending]
        return min((end.mono_ns + good_for_ns for end in ends if end), default=None)

    def finalize_ended(self, now_ns: int) -> None:
        """Close all that have ended, since it may be that no look comes any more."""
        for entry in self._containers:
            self.finalize_container(entry, now_ns)

    def finalize_container(self, account: ContainerAccount, now_ns: int) -> None:
        """Close all of a container's that have ended."""
        for one in [*account.ending]:
            self._finalize(account, one, now_ns)

    def release_container(self, account: ContainerAccount, now_ns: int) -> None:
        """Close all of a container that is kept no more; what comes for it is nobody's."""
        self.finalize_container(account, now_ns)
        self.pending.move_to_unattributed(account.name)
        self._containers.note_removed_end(account)

    def rename(
        self,
        before: ContainerName,
        name: ContainerName,
        folded: Mapping[HoldingAccount, HoldingAccount],
    ) -> None:
        """Let what is pending of a container be that of another name.

        Args:
            before: its name so far.
            name: its name now.
            folded: holdings that are none any more, each with the one that stands for it.
        """
        pending = self.pending
        for parts in (pending.held, pending.busy or {}):
            if before in parts:
                parts[name] = parts.get(name, 0) + parts.pop(before)
        if before in pending.concealed:
            pending.concealed = pending.concealed - {before} | {name}
        for one, other in folded.items():
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
