"""The accounts of all devices."""

from collections.abc import Iterable, Mapping, Sequence

from pipeline.model import Attribution, DeviceUsage, DeviceUse, Instant, PodInfo, Usage
from pipeline.usage.account_ids import Ids
from pipeline.usage.container_accounts import KEPT_NS
from pipeline.usage.device_account import NEVER, DeviceAccount
from pipeline.usage.ended_holdings import Ended
from pipeline.usage.holder_timeline import held_by
from pipeline.usage.interval_samples import Interval, Name, Process
from pipeline.usage.mig_energy import SLICES, carried, share_out
from pipeline.usage.renames import Meant, never
from pipeline.usage.restored_accounts import Waiting, end_all
from pipeline.usage.xid_attribution import Struck, strike, struck


class Accounts:
    """Accounts by device uuid. Not one for a device that isn't known, and none before its looks.

    The account of a device that is no longer known is kept for a while, and goes on if the device
    comes back: MIG instances are made anew under the same uuid.

    Args:
        run: identifies this run of podgpu: the ids of accounts, containers and holdings begin with
            it.
    """

    def __init__(self, run: str = "") -> None:
        self._ids = Ids(run)
        self._accounts: dict[str, DeviceAccount] = {}
        self._seen: dict[str, Attribution] = {}
        self._gone: dict[str, int] = {}
        self._instances: Mapping[str, Mapping[str, int]] = {}
        self._ended = Ended()
        self._waiting = Waiting(self._ended, self._ids)
        self._informed = True
        self._meant: Meant = never
        self._due_ns = NEVER
        self._usage: Usage | None = None
        self._apart: Usage | None = None
        self._dirty = True

    def __contains__(self, device: str) -> bool:
        """Whether a device is known."""
        return device in self._seen

    def hold(
        self,
        attributions: Mapping[str, Attribution],
        at: Instant,
        *,
        informed: bool = True,
        meant: Meant = never,
    ) -> None:
        """Note which devices there are, and who holds them from a moment on.

        Args:
            attributions: by device uuid, in device order; what hasn't changed is the same object.
            at: the moment. One before that of an earlier call stands for that.
            informed: whether a source tells who holds what: else it isn't known that a device
                without holders is free.
            meant: tells what a pod's name meant before its uid was known.
        """
        self._meant = meant
        seen = self._seen
        turned, self._informed = informed != self._informed, informed
        changed = {
            u: known for u, known in attributions.items() if turned or seen.get(u) is not known
        }
        if not changed and len(seen) == len(attributions):
            return
        self._dirty = True
        self._seen = dict(attributions)
        before, carries = self._instances, carried(one.device for one in attributions.values())
        self._instances = carries
        for uuid in [uuid for uuid in seen if uuid not in attributions]:
            self._gone[uuid] = at.mono_ns
            self._put(uuid, None, at)
            self._accounts[uuid].leave(at, at.mono_ns)
        changed |= {
            u: known for u, known in attributions.items() if (u in carries) != (u in before)
        }
        for uuid, known in changed.items():
            self._gone.pop(uuid, None)
            self._put(uuid, known, at)
        self._due_ns = min(self._due_ns, at.mono_ns + KEPT_NS)

    def _put(self, uuid: str, known: Attribution | None, at: Instant) -> None:
        account = self._accounts.get(uuid)
        if account is None:
            account = self._accounts[uuid] = DeviceAccount(uuid, self._ended, self._ids)
        told = None if known is None else self._waiting.take(uuid)
        if told is not None:
            self._go_on(account, told, at)
        # Of a GPU that carries instances there is nothing to be held.
        holders = () if known is None or uuid in self._instances else known.holders
        account.hold(held_by(holders), at, known=self._informed, meant=self._meant)
        self._due_ns = min(self._due_ns, account.due_ns)

    def restore(self, devices: Iterable[DeviceUsage], at: Instant) -> None:
        """Go on from where accounts stood when podgpu last ran.

        One of a device that isn't known yet waits for a while; one of a device that has an account
        already goes on nowhere.

        Args:
            devices: the accounts.
            at: the present.
        """
        self._waiting.put(devices, at)
        for uuid, known in self._seen.items():
            self._put(uuid, known, at)
        self._due_ns = min(self._due_ns, self._waiting.due_ns or NEVER, self._ended.due_ns or NEVER)
        self._dirty = True

    def goes_on(self, device: str) -> bool:
        """Whether a device has an account already, or one that waits for it."""
        account = self._accounts.get(device)
        return (account is not None and account.at is not None) or device in self._waiting

    def _go_on(self, account: DeviceAccount, told: DeviceUsage, at: Instant) -> None:
        if account.at is None:
            account.restore(told, at)
        else:
            end_all(told, self._ended, at, self._ids)

    def nameless(self, device: str) -> list[Name]:
        """Return the containers on a device that is known whose pod has a uid and no name."""
        return self._accounts[device].renaming.nameless

    def name(self, device: str, before: Name, name: Name, pod: PodInfo | None) -> None:
        """Let such a container go on under its full name, if that is one."""
        account = self._accounts[device]
        account.renamed(account.renaming.name(before, name, pod))
        self._dirty = True

    def name_pod(self, place: tuple[str, str], pod: PodInfo, meant: Meant) -> None:
        """Let containers go on under their full names that had the name of a pod and no uid.

        Those that hold a device now are left to `hold`.

        Args:
            place: namespace and name of a pod.
            pod: what is known of the pod that the name means.
            meant: tells what the name meant before.
        """
        for account in self._accounts.values():
            found = account.renaming.name_pod(place, pod, meant)
            account.renamed(found)
            self._dirty = self._dirty or bool(found)

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
                account.pend(interval)
        else:
            adjoins = account.adjoins(since)
            used = account.meter.read(source, use.energy_mj, at.mono_ns, adjoins=adjoins)
            if device in self._instances:
                account.take_pending()
                account.look_away(at)
                self._split(account, used)
            else:
                self._spend(account, used, use, since, processes)
            account.publish(at.mono_ns)
        self._due_ns = min(self._due_ns, account.due_ns)
        self._dirty = True
        return True

    def _spend(
        self,
        account: DeviceAccount,
        used: int | None,
        use: DeviceUse,
        since: Instant | None,
        processes: Sequence[Process],
    ) -> None:
        """Take in a look at a whole GPU, with what it used since its counter was last known."""
        if not account.adjoins(since):
            account.take_pending()
        interval = account.look(use, since, processes)
        if interval is not None:
            account.pend(interval)
        meter = account.meter
        if meter.waits:
            return
        interval = account.take_pending()
        if used is not None and interval.time_ns:
            meter.learn(used, meter.time_ns, interval.busy_ns)
            account.spend(used, meter.idle(used, meter.time_ns), interval)

    def _split(self, gpu: DeviceAccount, used: int | None) -> None:
        """Split the energy of a GPU among the instances that it carries, once it is known."""
        if gpu.meter.waits:
            return
        slices = self._instances[gpu.device]
        accounts = {uuid: self._accounts[uuid] for uuid in slices}
        looked: list[tuple[DeviceAccount, int, Interval]] = []
        for uuid, account in accounts.items():
            interval = account.take_pending()
            if interval.time_ns:
                looked.append((account, slices[uuid], interval))
        if used is not None:
            self._share_out(gpu, used, looked)
        if gpu.at is not None:
            for account in accounts.values():
                account.publish(gpu.at.mono_ns)

    def _share_out(
        self,
        gpu: DeviceAccount,
        used: int,
        looked: Sequence[tuple[DeviceAccount, int, Interval]],
    ) -> None:
        slices, time_ns = self._instances[gpu.device], gpu.meter.time_ns
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

    def withdraw(self, device: str, at: Instant) -> None:
        """Let what is known of a device's memory be unknown: nobody stands by it any more.

        Holdings that have ended are told of, since it may be that nobody looks any more.
        """
        account = self._accounts[device]
        account.withdraw()
        account.flush(at.mono_ns)
        self._dirty = True

    def expire(self, now: Instant) -> bool:
        """Let go of what is no longer good, by the monotonic clock; return whether anything was."""
        now_ns = now.mono_ns
        if now_ns <= self._due_ns:
            return False
        over = [uuid for uuid, since in self._gone.items() if now_ns - since > KEPT_NS]
        for uuid in over:
            del self._gone[uuid], self._accounts[uuid]
        changed = [account.expire(now_ns) for account in self._accounts.values()]
        changed += [self._waiting.expire(now), self._ended.expire(now_ns)]
        ends = [account.due_ns for account in self._accounts.values()]
        ends += [since + KEPT_NS for since in self._gone.values()]
        ends += [self._waiting.due_ns or NEVER, self._ended.due_ns or NEVER]
        self._due_ns = min(ends)
        self._dirty = self._dirty or any(changed)
        return any(changed)

    def struck(self, device: str, moment_ns: int) -> list[tuple[str, Struck]]:
        """Return who held or used a device at a moment, each with the device that it was on.

        Args:
            device: uuid of one that is known; of a GPU, its MIG instances count as well.
            moment_ns: by the monotonic clock.
        """
        devices = (device, *self._instances.get(device, ()))
        found = [(uuid, one) for uuid in devices for one in struck(self._accounts[uuid], moment_ns)]
        return sorted(found, key=lambda one: (one[1].container, one[0]))

    def strike(self, device: str, container: Name, code: int, moment_ns: int) -> None:
        """Count an XID error of a container on a device that is known."""
        strike(self._accounts[device], container, code, moment_ns)
        self._dirty = True

    def ended(self) -> Usage | None:
        """Return the holdings that have ended, without any account; None where there are none."""
        usage = self.usage()
        if not usage.ended:
            return None
        if self._apart is None or self._apart.ended is not usage.ended:
            self._apart = Usage({}, 0, usage.ended, usage.ended_lost)
        return self._apart

    def clear(self, now_ns: int) -> None:
        """Forget all accounts, but not who holds the devices. Holdings ended with the last look."""
        for uuid, account in self._accounts.items():
            if account.at is not None:
                account.leave(account.at, now_ns)
            self._accounts[uuid] = DeviceAccount(uuid, self._ended, self._ids, account.timeline)
        self._due_ns = min(self._due_ns, self._ended.due_ns or NEVER)
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
        ended, lost = self._ended.shown(), self._ended.lost
        if (
            known is None
            or (left_out, lost) != (known.left_out, known.ended_lost)
            or ended is not known.ended
            or not _same(devices, known.devices)
        ):
            self._usage = known = Usage(devices, left_out, ended, lost)
        return known


def _is_empty(found: DeviceUsage) -> bool:
    return found.energy_mj is None and not found.elapsed_ns


def _same(found: Mapping[str, DeviceUsage], known: Mapping[str, DeviceUsage]) -> bool:
    return list(found) == list(known) and all(known[uuid] is one for uuid, one in found.items())
