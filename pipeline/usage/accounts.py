"""The accounts of all devices."""

from collections.abc import Mapping, Sequence

from pipeline.model import Attribution, DeviceUsage, DeviceUse, Instant, Usage
from pipeline.usage.device import NEVER, DeviceAccount
from pipeline.usage.instances import SLICES, carried, share_out
from pipeline.usage.looks import Interval, Process
from pipeline.usage.roster import KEPT_NS
from pipeline.usage.timeline import held_by


class Accounts:
    """Accounts by device uuid. Not one for a device that isn't known, and none before its looks.

    The account of a device that is no longer known is kept for a while, and goes on if the device
    comes back: MIG instances are made anew under the same uuid.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, DeviceAccount] = {}
        self._seen: dict[str, Attribution] = {}
        self._gone: dict[str, int] = {}
        self._instances: Mapping[str, Mapping[str, int]] = {}
        self._due_ns = NEVER
        self._usage: Usage | None = None
        self._dirty = True

    def __contains__(self, device: str) -> bool:
        """Whether a device is known."""
        return device in self._seen

    def hold(self, attributions: Mapping[str, Attribution], at: Instant) -> None:
        """Note which devices there are, and who holds them from a moment on.

        Args:
            attributions: by device uuid, in device order; what hasn't changed is the same object.
            at: the moment. One before that of an earlier call stands for that.
        """
        seen = self._seen
        changed = {u: known for u, known in attributions.items() if seen.get(u) is not known}
        if not changed and len(seen) == len(attributions):
            return
        self._dirty = True
        self._seen = dict(attributions)
        before = self._instances
        self._instances = carried(known.device for known in attributions.values())
        for uuid in seen.keys() - attributions.keys():
            self._gone[uuid] = at.mono_ns
            self._put(uuid, None, at)
            self._accounts[uuid].pending = Interval()
        for uuid in self._instances.keys() ^ before.keys():
            if uuid in attributions:
                changed[uuid] = attributions[uuid]
        for uuid, known in changed.items():
            self._gone.pop(uuid, None)
            self._put(uuid, known, at)
        self._due_ns = min(self._due_ns, at.mono_ns + KEPT_NS)

    def _put(self, uuid: str, known: Attribution | None, at: Instant) -> None:
        account = self._accounts.get(uuid)
        if account is None:
            account = self._accounts[uuid] = DeviceAccount(uuid)
        # Of a GPU that carries instances there is nothing to be held.
        holders = () if known is None or uuid in self._instances else known.holders
        account.hold(held_by(holders), at)

    def take(self, source: str, device: str, use: DeviceUse, processes: Sequence[Process]) -> bool:
        """Take in a look; return whether it was one that counts.

        Args:
            source: who looked.
            device: uuid of a device that is known.
            use: what was found.
            processes: the same processes as in `use`, now that it is known whose they are.
        """
        account = self._accounts[device]
        at = use.at
        if account.at is not None and at.mono_ns <= account.at.mono_ns:
            return False
        since = account.since(use)
        mig = self._seen[device].device.mig
        if mig is not None:
            interval = account.look(use, since, processes)
            if interval is not None:
                account.pending.add(interval)
        else:
            used = account.meter.read(source, use.energy_mj, adjoins=account.adjoins(since))
            time_ns = 0 if since is None else at.mono_ns - since.mono_ns
            if device in self._instances:
                account.look_away(at)
                self._split(account, used, time_ns)
            else:
                interval = account.look(use, since, processes)
                if used is not None and interval is not None:
                    meter = account.meter
                    meter.learn(used, time_ns, interval.busy_ns)
                    account.spend(used, meter.idle(used, time_ns), interval)
        self._due_ns = min(self._due_ns, account.due_ns)
        self._dirty = True
        return True

    def _split(self, gpu: DeviceAccount, used: int | None, time_ns: int) -> None:
        """Split the energy of a GPU among the instances that it carries."""
        slices = self._instances[gpu.device]
        looked: list[tuple[DeviceAccount, int, Interval]] = []
        for uuid, number in slices.items():
            account = self._accounts[uuid]
            interval, account.pending = account.pending, Interval()
            if interval.time_ns:
                looked.append((account, number, interval))
        if used is None:
            return
        times = [interval.busy_ns for _, _, interval in looked]
        if len(looked) == len(slices) and None not in times:
            gpu.meter.learn(used, time_ns, sum(time or 0 for time in times))
        parts = [(number, interval) for _, number, interval in looked]
        whole = max(SLICES, sum(slices.values()))
        vacant = whole - sum(number for number, _ in parts)
        draws, left = share_out(used, gpu.meter.idle(used, time_ns), parts, vacant)
        for (account, _, interval), draw in zip(looked, draws, strict=True):
            account.spend(draw.idle + draw.rest, draw.idle, interval)
        gpu.waste(left)

    def withdraw(self, device: str) -> None:
        """Let what is known of a device's memory be unknown: nobody stands by it any more."""
        self._accounts[device].withdraw()
        self._dirty = True

    def expire(self, now_ns: int) -> bool:
        """Let go of what is no longer good, by the monotonic clock; return whether anything was."""
        if now_ns <= self._due_ns:
            return False
        over = [uuid for uuid, since in self._gone.items() if now_ns - since > KEPT_NS]
        for uuid in over:
            del self._gone[uuid], self._accounts[uuid]
        changed = [account.expire(now_ns) for account in self._accounts.values()]
        ends = [account.due_ns for account in self._accounts.values()]
        ends += [since + KEPT_NS for since in self._gone.values()]
        self._due_ns = min(ends, default=NEVER)
        self._dirty = self._dirty or any(changed)
        return any(changed)

    def clear(self) -> None:
        """Forget all accounts, but not who holds the devices."""
        for uuid, account in self._accounts.items():
            self._accounts[uuid] = DeviceAccount(uuid, account.timeline)
        self._dirty = True

    def usage(self) -> Usage:
        """Return what it all comes to; the same object while nothing of that changes."""
        known = self._usage
        if known is not None and not self._dirty:
            return known
        self._dirty = False
        devices: dict[str, DeviceUsage] = {}
        left_out = 0
        for uuid in self._seen:
            account = self._accounts[uuid]
            found = account.usage()
            if found is None or (uuid in self._instances and _is_empty(found)):
                continue
            devices[uuid] = found
            left_out += account.left_out
        if known is None or left_out != known.left_out or not _same(devices, known.devices):
            self._usage = known = Usage(devices, left_out)
        return known


def _is_empty(found: DeviceUsage) -> bool:
    return found.energy_mj is None and not found.elapsed_ns


def _same(found: Mapping[str, DeviceUsage], known: Mapping[str, DeviceUsage]) -> bool:
    return list(found) == list(known) and all(known[uuid] is one for uuid, one in found.items())
