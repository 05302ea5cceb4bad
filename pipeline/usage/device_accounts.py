"""The usage accounts of all devices."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final

from pipeline.model import (
    NS,
    Attribution,
    DeviceUsage,
    DeviceUse,
    Instant,
    PartialRef,
    PodInfo,
    Usage,
    XidVictim,
)
from pipeline.usage.container_account import Ids
from pipeline.usage.container_accounts import RETENTION_NS
from pipeline.usage.device_account import DeviceAccount
from pipeline.usage.ended_holdings import NEVER, EndedHoldings
from pipeline.usage.holder_timeline import by_container
from pipeline.usage.interval_samples import ContainerName, ProcessSample
from pipeline.usage.mig_energy import COMPUTE_SLICES, instances_by_gpu, split_gpu_energy
from pipeline.usage.renames import NameReferredTo, never_referred
from pipeline.usage.restored_accounts import end_stored_holdings

MAX_PENDING: Final = 512
"""Largest number of stored accounts that wait for their device. 16 GPUs with 7 MIG instances each
need 128."""

PENDING_NS: Final = 300 * NS
"""How long a stored account waits for its device."""


class UsageAccounts:
    """Usage accounts by device uuid. A device has an account from its first sample on.

    The account of a removed device is kept for `RETENTION_NS` and continues if the device returns:
    a MIG instance that is created again can have the same uuid.

    Args:
        run: identifies this run of podgpu; prefix of the ids of accounts, containers and holdings.
    """

    def __init__(self, run: str = "") -> None:
        numbers = count(1)
        self._ids: Ids = lambda: f"{run}-{next(numbers)}"
        self._accounts: dict[str, DeviceAccount] = {}
        self._attributions: dict[str, Attribution] = {}
        self._removed: dict[str, int] = {}
        self._instances: Mapping[str, Mapping[str, int]] = {}
        self._ended = EndedHoldings()
        self._stored: dict[str, DeviceUsage] = {}
        self._stored_until_ns = 0
        self._holders_known = True
        self._referred_to: NameReferredTo = never_referred
        self._due_ns = NEVER
        self._usage: Usage | None = None
        self._ended_only: Usage | None = None
        self._shown: dict[str, DeviceUsage] = {}
        self._dirty = True

    def __contains__(self, device: str) -> bool:
        """Whether the device is known."""
        return device in self._attributions

    def update_holders(
        self,
        attributions: Mapping[str, Attribution],
        at: Instant,
        *,
        holders_known: bool = True,
        referred_to: NameReferredTo = never_referred,
    ) -> None:
        """Record the devices, and their holders from a moment on.

        Args:
            attributions: all devices, by uuid, in device order. A device that is missing is
                removed. Pass the same object for an attribution that has not changed.
            at: the moment; a time before that of an earlier call counts as the earlier call's time.
            holders_known: whether a source reports all holders. Otherwise it is unknown whether a
                device without holders is free.
            referred_to: returns whether a pod's name meant the pod with this uid at an earlier
                moment.
        """
        self._referred_to = referred_to
        seen = self._attributions
        all_changed = holders_known != self._holders_known
        self._holders_known = holders_known
        changed = {
            u: known for u, known in attributions.items() if all_changed or seen.get(u) is not known
        }
        if not changed and len(seen) == len(attributions):
            return
        self._dirty = True
        self._attributions = dict(attributions)
        before = self._instances
        instances = instances_by_gpu(one.device for one in attributions.values())
        self._instances = instances
        for uuid in [uuid for uuid in seen if uuid not in attributions]:
            self._removed[uuid] = at.mono_ns
            self._put(uuid, None, at)
            self._changed(uuid).end_all_holdings(at, at.mono_ns)
        changed |= {
            u: known for u, known in attributions.items() if (u in instances) != (u in before)
        }
        for uuid, known in changed.items():
            self._removed.pop(uuid, None)
            self._put(uuid, known, at)
        self._due_ns = min(self._due_ns, at.mono_ns + RETENTION_NS)

    def _put(self, uuid: str, known: Attribution | None, at: Instant) -> None:
        if uuid not in self._accounts:
            self._accounts[uuid] = DeviceAccount(uuid, self._ended, self._ids)
        account = self._changed(uuid)
        stored = None if known is None else self._stored.pop(uuid, None)
        if stored is not None and account.at is None:
            account.restore(stored, at)
        elif stored is not None:
            end_stored_holdings(stored, self._ended, at, self._ids)
        # A GPU with MIG instances is not held itself.
        holders = () if known is None or uuid in self._instances else known.holders
        account.update_holders(
            by_container(holders), at, self._referred_to, holders_known=self._holders_known
        )
        self._due_ns = min(self._due_ns, account.due_ns)

    def restore(self, devices: Iterable[DeviceUsage], at: Instant) -> None:
        """Continue the accounts that were stored when podgpu last ran.

        The account of an unknown device waits for the device, for `PENDING_NS`. If it does not
        appear, if `MAX_PENDING` accounts are waiting, or if the device already has an account with
        samples, the stored account is not continued and its holdings become final.

        Args:
            devices: the stored accounts.
            at: the present time.
        """
        for one in devices:
            if one.device in self._stored:
                end_stored_holdings(self._stored.pop(one.device), self._ended, at, self._ids)
            if len(self._stored) < MAX_PENDING:
                self._stored[one.device] = one
            else:
                end_stored_holdings(one, self._ended, at, self._ids)
        self._stored_until_ns = at.mono_ns + PENDING_NS
        for uuid, known in self._attributions.items():
            self._put(uuid, known, at)
        self._due_ns = min(self._due_ns, self._stored_until_ns, self._ended.due_ns)
        self._dirty = True

    def has_account(self, device: str) -> bool:
        """Whether a device has an account or a stored account that waits for it."""
        account = self._accounts.get(device)
        return (account is not None and account.at is not None) or device in self._stored

    def unnamed_containers(self, device: str) -> list[ContainerName]:
        """Return the containers on a known device whose pod's uid is known, but not its name."""
        return self._accounts[device].identity_completion.unnamed_containers

    def set_container_name(
        self, device: str, before: ContainerName, name: ContainerName, pod: PodInfo | None
    ) -> None:
        """Give an unnamed container its full name, if `name` is complete and unambiguous.

        This does nothing if the container holds the device now: `update_holders` renames holders.
        """
        self._changed(device).identity_completion.set_container_name(before, name, pod)

    def complete_pod_identity(self, pod: PodInfo, referred_to: NameReferredTo) -> None:
        """Rename containers that were recorded with a pod's name and without its uid.

        `update_holders` renames those that hold a device now.

        Args:
            pod: the pod that the name means now.
            referred_to: returns whether the name meant that pod at an earlier moment.
        """
        for uuid, account in self._accounts.items():
            if account.identity_completion.complete_pod_identity(pod, referred_to):
                self._changed(uuid)

    def add_sample(
        self, source: str, device: str, use: DeviceUse, processes: Sequence[ProcessSample]
    ) -> bool:
        """Add a usage sample; return False, and add nothing, if it is not newer than the last one.

        The energy of a GPU with MIG instances is split among its instances.

        Args:
            source: name of the source.
            device: uuid of a known device.
            use: the sample.
            processes: the processes of `use` with their containers.
        """
        account, at = self._accounts[device], use.at
        if account.at is not None and at.mono_ns <= account.at.mono_ns:
            return False
        self._changed(device)
        since = account.counting_start(use)
        if self._attributions[device].device.mig is not None:
            account.add_sample(use, since, processes)
        else:
            adjoins = account.is_contiguous(since)
            used = account.energy_meter.read(source, use.energy_mj, at.mono_ns, adjoins=adjoins)
            if device in self._instances:
                account.containers.take_pending()
                account.skip_sample(at)
                self._split_energy(account, used, at)
            else:
                if not adjoins:
                    account.containers.take_pending()
                account.add_sample(use, since, processes)
                account.add_pending_energy(used)
            account.finalize_sampled(at.mono_ns)
        self._due_ns = min(self._due_ns, account.due_ns)
        return True

    def _split_energy(self, gpu: DeviceAccount, used: int | None, at: Instant) -> None:
        """Split the energy of a GPU among its MIG instances; if it is unknown, count none."""
        if gpu.energy_meter.has_outstanding_energy:
            return
        slices = self._instances[gpu.device]
        accounts = [self._changed(uuid) for uuid in slices]
        intervals = [(one, one.containers.take_pending()) for one in accounts]
        sampled = [(one, interval) for one, interval in intervals if interval.time_ns]
        if used is not None:
            parts = [(slices[one.device], interval) for one, interval in sampled]
            times = [interval.busy_ns for _, interval in parts if interval.busy_ns is not None]
            busy_ns = sum(times) if len(times) == len(slices) else None
            whole = max(COMPUTE_SLICES, sum(slices.values()))
            vacant = whole - sum(number for number, _ in parts)
            idle = gpu.energy_meter.idle_energy(used, busy_ns)
            draws, left = split_gpu_energy(used, idle, parts, vacant)
            for (one, interval), (energy, idle) in zip(sampled, draws, strict=True):
                one.totals.count_energy(energy, idle, interval)
            gpu.totals.add_unattributed_energy(left, left)
        for one in accounts:
            one.finalize_sampled(at.mono_ns)

    def forget_present(self, device: str, at: Instant) -> None:
        """Set memory and load of a device to unknown, because its source no longer confirms them.

        Holdings that have ended become final, because there may be no further sample.
        """
        account = self._changed(device)
        account.forget_present()
        account.containers.finalize(at.mono_ns)

    def expire(self, now: Instant) -> bool:
        """Discard what has expired; return whether anything changed."""
        now_ns = now.mono_ns
        if now_ns <= self._due_ns:
            return False
        expired = [uuid for uuid, since in self._removed.items() if now_ns - since > RETENTION_NS]
        for uuid in expired:
            del self._removed[uuid], self._accounts[uuid]
        changed = [uuid for uuid, account in self._accounts.items() if account.expire(now_ns)]
        for uuid in changed:
            self._changed(uuid)
        stored_expired = bool(self._stored) and now_ns > self._stored_until_ns
        if stored_expired:
            for one in self._stored.values():
                end_stored_holdings(one, self._ended, now, self._ids)
            self._stored.clear()
        ended_changed = self._ended.expire(now_ns) or stored_expired
        ends = [account.due_ns for account in self._accounts.values()]
        ends += [since + RETENTION_NS for since in self._removed.values()]
        ends += [self._stored_until_ns] if self._stored else []
        self._due_ns = min([*ends, self._ended.due_ns])
        self._dirty |= ended_changed
        return bool(changed) or ended_changed

    def affected_by_xid(self, device: str, moment_ns: int) -> list[XidVictim]:
        """Return the containers that held or used a device at a moment.

        Past holders are kept for at least a minute (at most `MAX_CHANGES` changes), also without
        usage samples. Without usage samples, no users are known.

        Args:
            device: uuid of a known device; for a GPU, its MIG instances are included.
            moment_ns: the moment, by the monotonic clock.
        """
        victims: list[XidVictim] = []
        for uuid in (device, *self._instances.get(device, ())):
            account = self._accounts[uuid]
            held = account.timeline.at(moment_ns)
            used = {e.name: e.pod for e in account.containers if e.used_at(moment_ns)}
            pods = {name: holder.pod for name, holder in held.items()} | used
            victims += [
                XidVictim(PartialRef(*name), pod, uuid, name in held, name in used)
                for name, pod in pods.items()
            ]
        return victims

    def count_xid(self, device: str, container: ContainerName, code: int, moment_ns: int) -> None:
        """Count an XID error of a container on a known device, if the container has an account."""
        entry = self._accounts[device].containers.get(container)
        if entry is not None:
            self._changed(device)
            entry.count_xid(code, moment_ns)

    def ended(self) -> Usage | None:
        """Return a `Usage` that has only the ended holdings; None if there are none."""
        usage = self.usage()
        if not usage.ended:
            return None
        if self._ended_only is None or self._ended_only.ended is not usage.ended:
            self._ended_only = Usage({}, 0, usage.ended, usage.ended_evicted)
        return self._ended_only

    def clear(self, now_ns: int) -> None:
        """Discard all accounts, but not the holders. Running holdings end at the last sample."""
        for uuid, account in self._accounts.items():
            if account.at is not None:
                account.end_all_holdings(account.at, now_ns)
            self._accounts[uuid] = DeviceAccount(uuid, self._ended, self._ids, account.timeline)
        self._shown.clear()
        self._due_ns = min(self._due_ns, self._ended.due_ns)
        self._dirty = True

    def _changed(self, uuid: str) -> DeviceAccount:
        """Return an account that changes, and note that its usage has to be calculated again."""
        self._shown.pop(uuid, None)
        self._dirty = True
        return self._accounts[uuid]

    def usage(self) -> Usage:
        """Return the usage of all devices; the same object while it is unchanged."""
        known = self._usage
        if known is not None and not self._dirty:
            return known
        self._dirty = False
        devices: dict[str, DeviceUsage] = {}
        left_out = 0
        for uuid in self._attributions:
            account = self._accounts[uuid]
            found = self._shown.get(uuid) or account.usage()
            if found is None:
                continue
            self._shown[uuid] = found
            if uuid in self._instances and found.energy_mj is None and not found.elapsed_ns:
                continue
            devices[uuid] = found
            left_out += len(account.containers.rejected)
        ended, lost = self._ended.holdings(), self._ended.evicted
        if (
            known is None
            or (left_out, lost) != (known.rejected_containers, known.ended_evicted)
            or ended is not known.ended
            or list(devices.items()) != list(known.devices.items())
        ):
            self._usage = known = Usage(devices, left_out, ended, lost)
        return known
