"""What podgpu must show and store after a story, in exact fractions.

It is written only from docs/usage.md and docs/sinks/ledger.md; nothing of `pipeline` is used here.
Where an amount is split, podgpu counts in whole units: each `Sum` knows by how many of them it may
differ (`slack`); this is 0 while all parts are whole.

Where the docs leave something open, the reference assumes:

- A process whose cgroup could not be read belongs to the single holder, whether it runs or not.
- A container that starts to hold a device after a sample was taken and before it is reported
  continues its holding even if that sample shows that its processes ended. Stories have no such
  times.
- A holding that is known to have ended after the last sample ended then, also if podgpu ended in
  between.
- A holding is final only once the energy of its time is known, or after three usage intervals,
  even if a sample that is reported later was taken within them.
- A container whose process is seen again after its end, as ended, starts another holding.
- An account whose device isn't found for five minutes restarts with its next sample, unless podgpu
  restarts before that sample: then it continues.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.accounting.account import MIG_GPUS, Account
from tests.accounting.actions import (
    Action,
    ClockSet,
    ContainerChanged,
    ContainerName,
    DevicesChanged,
    ErrorReported,
    Killed,
    KubeletChanged,
    PodListChanged,
    Rebooted,
    RuntimeReported,
    S,
    Sample,
    SamplesReported,
    Started,
    Stopped,
    Story,
)
from tests.accounting.reference_types import (
    SLICES,
    Holders,
    Holding,
    UsageTotals,
    WallClock,
)

START_WAIT: Final = 10 * S
"""How long samples are ignored after a start, while a source hasn't reported."""
FOUND_WITHIN: Final = 300 * S
"""Within this time after a start a device must be found for its account to continue."""
CLOCK_TOLERANCE: Final = S // 2
"""A difference of wall times up to this is not taken for a clock that was set."""
SAME_ERROR_WITHIN: Final = 5 * S
"""Two sources that report the same code of one GPU within this time report one error."""


class Reference:
    """Perform actions, and calculate the accounts that must result."""

    def __init__(self, story: Story) -> None:
        self.clocks = WallClock(story.wall)
        self.sources = set(story.sources)
        self.claims = story.claims
        self.unreported: dict[ContainerName, dict[str, float | None]] = {}
        self.accounts: dict[str, Account] = {}
        self.running: dict[ContainerName, dict[str, float | None]] = {}
        self.allocated: dict[str, ContainerName] = {}
        self.in_file: dict[str, ContainerName] = {}
        self.boot = 0
        self.now = self.reported_at = -1
        self.up = False
        self.started_at = self.offset_at_start = 0
        self.known_devices: set[str] = set()
        self.has_samples = False
        self.errors: dict[tuple[str, int], tuple[int, str]] = {}
        self.listed = False
        self.uncommitted_errors: list[tuple[Counter[int], int]] = []
        """Where errors were counted before a source reported samples, and their codes."""

    def play(self, actions: Iterable[Action]) -> None:
        for moment, reported_at, action in in_order(actions):
            if not isinstance(action, Killed | Stopped | ClockSet) and moment > self.now:
                self._advance(moment)  # what the passing of time alone changes
            self.now = moment
            if isinstance(action, Sample) and reported_at > self.reported_at:
                # All samples that are reported together are late for holdings that are final then.
                self.reported_at = reported_at
                for account in self.accounts.values():
                    account.finalize_ended(reported_at)
            match action:
                case Sample():
                    self._add_sample(action)
                case _:
                    self._perform(moment, action)

    def _advance(self, now: int) -> None:
        """Let time pass until a moment."""
        for account in self.accounts.values() if self.up else ():
            account.expire(now)
            late = account.away and not account.restarted and now > self.started_at + FOUND_WITHIN
            if late and account.abandon():
                account.boot, account.shift = self.boot, 0
                account.offset = self.offset_at_start

    def _perform(self, at: int, action: Action) -> None:
        match action:
            case Started(running=running, allocated=allocated, devices=devices, late=late):
                for name, account in self.accounts.items():
                    if account.boot != self.boot:
                        account.rebase(at, self.clocks.offset)
                        if name in devices:
                            account.limit_times(at)
                    # The file has it immediately.
                    self._set_boot(account, self.clocks.offset)
                self.started_at, self.offset_at_start, self.up = at, self.clocks.offset, True
                self.unreported = {container: dict(holds) for container, holds in running.items()}
                self.running = {} if late or "runtime" not in self.sources else self.unreported
                self.allocated, self.in_file = dict(allocated), {}
                if "kubelet" not in self.sources:
                    self.allocated = {}
                self.listed = "kubelet" in self.sources or (not late and "runtime" in self.sources)
                for account in self.accounts.values():
                    account.restore()
                self.known_devices, self.has_samples = set(), False
                self._set_devices(at, devices)
                self._update_holders(at)
            case SamplesReported():
                # Its samples may be ignored, but they show that a source takes samples.
                self.uncommitted_errors.clear()
                if not self.has_samples:
                    self.has_samples = True
                    self._write_accounts()
            case RuntimeReported():
                self.running, self.listed = self.unreported, True
                self._update_holders(at)
            case ContainerChanged(container=container, holds=holds):
                self.running.pop(container, None)
                if holds is not None:
                    self.running[container] = dict(holds)
                self._update_holders(at)
            case KubeletChanged(device=device, container=container):
                self.allocated.pop(device, None)
                if container is not None:
                    self.allocated[device] = container
                self._update_holders(at)
            case PodListChanged(device=device, container=container):
                self.in_file.pop(device, None)
                if container is not None:
                    self.in_file[device] = container
                self._update_holders(at)
            case Rebooted():
                self.boot += 1
            case DevicesChanged(devices=devices):
                self._set_devices(at, devices)
                self._update_holders(at)
            case Killed() | Stopped():
                self.up = False
                for counts, code in self.uncommitted_errors:
                    counts[code] -= 1
                    if not counts[code]:
                        del counts[code]
                self.uncommitted_errors.clear()
            case ClockSet(by=by):
                self.clocks.offset += by
            case ErrorReported():
                self._add_error(action)
            case _:
                pass

    def _set_devices(self, at: int, devices: Iterable[str]) -> None:
        """Make some devices available; one that was missing for too long is not continued."""
        self.known_devices |= set(devices)
        for device in devices:
            account = self.accounts.get(device)
            if account is not None and account.away:
                account.limit_times(at)
                account.away = False
        self._write_accounts()

    def _write_accounts(self) -> None:
        """Write accounts to the file; they are written once a source takes samples."""
        for account in self.accounts.values() if self.has_samples else ():
            if account.away or account.written:
                continue
            account.written = True
            self._set_boot(account, self.offset_at_start)

    def _set_boot(self, account: Account, offset: int) -> None:
        """Convert the times of an account to this boot."""
        account.boot, account.shift = self.boot, 0
        if abs(offset - account.offset) > CLOCK_TOLERANCE:
            account.offset = offset

    def _update_holders(self, at: int) -> None:
        for device, account in self.accounts.items():
            holders, last = self._holders(device), account.changes[-1] if account.changes else None
            if last is None or (last.holders, last.listed) != (holders, self.lists_all_holders):
                account.set_holders(at, holders, self.lists_all_holders)

    @property
    def lists_all_holders(self) -> bool:
        """Whether all holders are listed, so that a device without holder is free."""
        has_unknown_device = self.claims and any(
            device not in self.known_devices for device in self.allocated
        )
        return self.listed and not has_unknown_device

    def _holders(self, device: str) -> Holders:
        found = {
            container: held[device] for container, held in self.running.items() if device in held
        }
        if device in self.allocated:
            found = {self.allocated[device]: None}
        elif device in self.in_file and not found:
            found = {self.in_file[device]: None}
        return found

    def _add_sample(self, sample: Sample) -> None:
        if sample.device not in self.accounts:
            account = self.accounts[sample.device] = Account(sample.device)
            if sample.device in MIG_GPUS:
                account.instances = [
                    self.accounts[name] for name in SLICES if name in self.accounts
                ]
            account.set_holders(sample.at, self._holders(sample.device), self.lists_all_holders)
        account = self.accounts[sample.device]
        if not self.has_samples:
            self.has_samples = True
            self._write_accounts()
        account.boot, account.shift = self.boot, 0
        if not account.changes:
            account.set_holders(sample.at, self._holders(sample.device), self.lists_all_holders)
        account.add_sample(sample, self.clocks)

    def _add_error(self, action: ErrorReported) -> None:
        """Count an error for all containers that held or used the device at that time."""
        account = self.accounts.get(action.device)
        key, previous = (action.device, action.code), self.errors.get((action.device, action.code))
        self.errors[key] = (action.when, action.by)
        if (
            previous is not None
            and previous[1] != action.by
            and action.when - previous[0] <= SAME_ERROR_WITHIN
        ):
            return
        if account is None or account.away:
            return
        if account.first is None:
            for container, usage in account.containers.items():
                if usage.pending and container in self._holders(action.device):
                    self._count_error(usage, usage.holdings[-1], action.code)
            return
        account.expire(action.when)
        for usage in account.containers.values():
            if not usage.pending:
                for holding in usage.holdings[-2:]:
                    started = holding.start <= action.when
                    if started and (holding.end is None or action.when < holding.end):
                        self._count_error(usage, holding, action.code)

    def _count_error(self, usage: UsageTotals, holding: Holding, code: int) -> None:
        for counts in (usage.xids, holding.xids):
            counts[code] += 1
            if not self.has_samples:
                self.uncommitted_errors.append((counts, code))


def in_order(actions: Iterable[Action]) -> Sequence[tuple[int, int, "Action | Sample"]]:
    """Return actions and samples by the time at which they happen, with the time of their report.

    Samples are ignored while a source has yet to report.
    """
    found: list[tuple[int, int, Action | Sample]] = []
    waits, first_report = False, None
    for action in actions:
        if isinstance(action, Started):
            waits, first_report = action.late, None
        elif isinstance(action, RuntimeReported):
            waits = False
        elif isinstance(action, SamplesReported) and waits:
            first_report = action.at if first_report is None else first_report
            if action.at < first_report + START_WAIT:
                found.append((action.at, action.at, action))
                continue
        if isinstance(action, SamplesReported):
            found.append((action.at, action.at, action))
            if action.by != "gpus":
                continue  # of two sources, the first in the configuration is used
            found.extend((one.at, action.at, one) for one in action.samples)
        elif isinstance(action, ErrorReported):
            found.append((action.when, action.at, action))
        else:
            found.append((action.at, action.at, action))
    found.sort(key=lambda each: each[0])
    return found
