"""The usage accounts of all devices."""

from collections.abc import Iterable, Mapping, Sequence

from pipeline.model import Attribution, DeviceUsage, DeviceUse, Instant, PodInfo, Usage
from pipeline.usage.container_accounts import RETENTION_NS, Ids
from pipeline.usage.device_account import DeviceAccount
from pipeline.usage.ended_holdings import NEVER, EndedHoldings
from pipeline.usage.holder_timeline import holder_shares
from pipeline.usage.interval_samples import ContainerName, IntervalUsage, ProcessSample
from pipeline.usage.mig_energy import COMPUTE_SLICES, instances_by_gpu, split_gpu_energy
from pipeline.usage.renames import NameReferredTo, never_referred
from pipeline.usage.restored_accounts import PendingRestores, end_stored_holdings
from pipeline.usage.xid_attribution import (
    AffectedContainer,
    affected_containers,
    count_container_xid,
)


class UsageAccounts:
    """Usage accounts by device uuid. Only known devices have one, from their first sample on.

    The account of a removed device is kept for a while and continues if the device returns: a MIG
    instance that is created again can have the same uuid.

    Args:
        run: identifies this run of podgpu; prefix of the ids of accounts, containers and holdings.
    """

    def __init__(self, run: str = "") -> None:
        self._ids = Ids(run)
        self._accounts: dict[str, DeviceAccount] = {}
        self._attributions: dict[str, Attribution] = {}
        self._removed: dict[str, int] = {}
        self._instances: Mapping[str, Mapping[str, int]] = {}
        self._ended = EndedHoldings()
        self._pending_restores = PendingRestores(self._ended, self._ids)
        self._holders_known = True
        self._referred_to: NameReferredTo = never_referred
        self._due_ns = NEVER
        self._usage: Usage | None = None
        self._split_devices: Usage | None = None
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
            attributions: by device uuid, in device order. An unchanged one is the same object.
            at: the moment; if it is before that of an earlier call, the earlier call's is used.
            holders_known: whether a source reports all holders. Otherwise it is unknown whether a
                device without holders is free.
            referred_to: returns whether a pod's name meant that pod before its uid was known.
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
            self._accounts[uuid].end_all_holdings(at, at.mono_ns)
        changed |= {
            u: known for u, known in attributions.items() if (u in instances) != (u in before)
        }
        for uuid, known in changed.items():
            self._removed.pop(uuid, None)
            self._put(uuid, known, at)
        self._due_ns = min(self._due_ns, at.mono_ns + RETENTION_NS)

    def _put(self, uuid: str, known: Attribution | None, at: Instant) -> None:
        account = self._accounts.get(uuid)
        if account is None:
            account = self._accounts[uuid] = DeviceAccount(uuid, self._ended, self._ids)
        stored = None if known is None else self._pending_restores.take(uuid)
        if stored is not None and account.at is None:
            account.restore(stored, at)
        elif stored is not None:
            end_stored_holdings(stored, self._ended, at, self._ids)
        # A GPU with MIG instances is not held itself.
        holders = () if known is None or uuid in self._instances else known.holders
        account.update_holders(
            holder_shares(holders),
            at,
            holders_known=self._holders_known,
            referred_to=self._referred_to,
        )
        self._due_ns = min(self._due_ns, account.due_ns)

    def restore(self, devices: Iterable[DeviceUsage], at: Instant) -> None:
        """Continue the accounts that were stored when podgpu last ran.

        An account of an unknown device waits for the device. An account of a device that has one
        already is not continued.

        Args:
            devices: the stored accounts.
            at: now.
        """
        self._pending_restores.put(devices, at)
        for uuid, known in self._attributions.items():
            self._put(uuid, known, at)
        self._due_ns = min(self._due_ns, self._pending_restores.due_ns, self._ended.due_ns)
        self._dirty = True

    def has_account(self, device: str) -> bool:
        """Whether a device has an account or a stored account that waits for it."""
        account = self._accounts.get(device)
        return (account is not None and account.at is not None) or device in self._pending_restores

    def unnamed_containers(self, device: str) -> list[ContainerName]:
        """Return the containers on a known device whose pod's uid is known, but not its name."""
        return self._accounts[device].identity_completion.unnamed_containers

    def set_container_name(
        self, device: str, before: ContainerName, name: ContainerName, pod: PodInfo | None
    ) -> None:
        """Give an unnamed container its full name, if `name` is complete and unambiguous."""
        account = self._accounts[device]
        account.renamed(account.identity_completion.set_container_name(before, name, pod))
        self._dirty = True

    def complete_pod_identity(
        self, pod_name: tuple[str, str], pod: PodInfo, referred_to: NameReferredTo
    ) -> None:
        """Rename containers that were recorded with a pod's name and without its uid.

        `update_holders` renames those that hold a device now.

        Args:
            pod_name: namespace and name of a pod.
            pod: the pod that the name means now.
            referred_to: returns whether the name meant that pod at an earlier moment.
        """
        for account in self._accounts.values():
            found = account.identity_completion.complete_pod_identity(pod_name, pod, referred_to)
            account.renamed(found)
            self._dirty = self._dirty or bool(found)

    def add_sample(
        self, source: str, device: str, use: DeviceUse, processes: Sequence[ProcessSample]
    ) -> bool:
        """Add a usage sample; return False if it is not newer than the last one.

        Args:
            source: name of the source.
            device: uuid of a known device.
            use: the sample.
            processes: the processes of `use` with their containers.
        """
        account = self._accounts[device]
        at = use.at
        if account.at is not None and at.mono_ns <= account.at.mono_ns:
            return False
        since = account.counting_start(use)
        mig = self._attributions[device].device.mig
        if mig is not None:
            interval = account.add_sample(use, since, processes)
            if interval is not None:
                account.finalizer.pending.append(interval)
        else:
            adjoins = account.is_contiguous(since)
            used = account.energy_meter.read(source, use.energy_mj, at.mono_ns, adjoins=adjoins)
            if device in self._instances:
                account.finalizer.take_pending()
                account.skip_sample(at)
                self._split_energy(account, used)
            else:
                self._add_energy(account, used, use, since, processes)
            account.finalize_sampled(at.mono_ns)
        self._due_ns = min(self._due_ns, account.due_ns)
        self._dirty = True
        return True

    def _add_energy(
        self,
        account: DeviceAccount,
        used: int | None,
        use: DeviceUse,
        since: Instant | None,
        processes: Sequence[ProcessSample],
    ) -> None:
        """Add a sample of a GPU without MIG, and its energy since the last good reading."""
        if not account.is_contiguous(since):
            account.finalizer.take_pending()
        interval = account.add_sample(use, since, processes)
        if interval is not None:
            account.finalizer.pending.append(interval)
        meter = account.energy_meter
        if meter.has_outstanding_energy:
            return
        interval = account.finalizer.take_pending()
        if used is not None and interval.time_ns:
            meter.learn_idle_power(used, meter.time_ns, interval.busy_ns)
            account.add_energy(used, meter.idle_energy(used, meter.time_ns), interval)

    def _split_energy(self, gpu: DeviceAccount, used: int | None) -> None:
        """Split the energy of a GPU among its MIG instances, if it is known."""
        if gpu.energy_meter.has_outstanding_energy:
            return
        slices = self._instances[gpu.device]
        accounts = {uuid: self._accounts[uuid] for uuid in slices}
        sampled: list[tuple[DeviceAccount, int, IntervalUsage]] = []
        for uuid, account in accounts.items():
            interval = account.finalizer.take_pending()
            if interval.time_ns:
                sampled.append((account, slices[uuid], interval))
        if used is not None:
            self._split_among_instances(gpu, used, sampled)
        if gpu.at is not None:
            for account in accounts.values():
                account.finalize_sampled(gpu.at.mono_ns)

    def _split_among_instances(
        self,
        gpu: DeviceAccount,
        used: int,
        sampled: Sequence[tuple[DeviceAccount, int, IntervalUsage]],
    ) -> None:
        slices, time_ns = self._instances[gpu.device], gpu.energy_meter.time_ns
        times = [interval.busy_ns for _, _, interval in sampled]
        if len(sampled) == len(slices) and None not in times:
            gpu.energy_meter.learn_idle_power(used, time_ns, sum(time or 0 for time in times))
        parts = [(number, interval) for _, number, interval in sampled]
        whole = max(COMPUTE_SLICES, sum(slices.values()))
        vacant = whole - sum(number for number, _ in parts)
        draws, left = split_gpu_energy(
            used, gpu.energy_meter.idle_energy(used, time_ns), parts, vacant
        )
        for (account, _, interval), (energy, idle) in zip(sampled, draws, strict=True):
            account.add_energy(energy, idle, interval)
        gpu.add_unattributed_energy(left)

    def forget_memory(self, device: str, at: Instant) -> None:
        """Set the memory of a device to unknown, because its source no longer confirms it.

        Holdings that have ended become final, because there may be no further sample.
        """
        account = self._accounts[device]
        account.forget_memory()
        account.finalize_ended(at.mono_ns)
        self._dirty = True

    def expire(self, now: Instant) -> bool:
        """Discard what has expired; return whether anything changed."""
        now_ns = now.mono_ns
        if now_ns <= self._due_ns:
            return False
        expired = [uuid for uuid, since in self._removed.items() if now_ns - since > RETENTION_NS]
        for uuid in expired:
            del self._removed[uuid], self._accounts[uuid]
        changed = [account.expire(now_ns) for account in self._accounts.values()]
        changed += [self._pending_restores.expire(now), self._ended.expire(now_ns)]
        ends = [account.due_ns for account in self._accounts.values()]
        ends += [since + RETENTION_NS for since in self._removed.values()]
        ends += [self._pending_restores.due_ns, self._ended.due_ns]
        self._due_ns = min(ends)
        self._dirty = self._dirty or any(changed)
        return any(changed)

    def affected_by_xid(self, device: str, moment_ns: int) -> list[tuple[str, AffectedContainer]]:
        """Return the containers that held or used a device at a moment, with their device.

        Args:
            device: uuid of a known device; for a GPU, its MIG instances are included.
            moment_ns: by the monotonic clock.
        """
        devices = (device, *self._instances.get(device, ()))
        found = [
            (uuid, one)
            for uuid in devices
            for one in affected_containers(self._accounts[uuid], moment_ns)
        ]
        return sorted(found, key=lambda one: (one[1].container, one[0]))

    def count_xid(self, device: str, container: ContainerName, code: int, moment_ns: int) -> None:
        """Count an XID error of a container on a known device."""
        count_container_xid(self._accounts[device], container, code, moment_ns)
        self._dirty = True

    def ended(self) -> Usage | None:
        """Return only the ended holdings, without accounts; None if there are none."""
        usage = self.usage()
        if not usage.ended:
            return None
        if self._split_devices is None or self._split_devices.ended is not usage.ended:
            self._split_devices = Usage({}, 0, usage.ended, usage.ended_evicted)
        return self._split_devices

    def clear(self, now_ns: int) -> None:
        """Discard all accounts, but not the holders. Holdings end at the last sample."""
        for uuid, account in self._accounts.items():
            if account.at is not None:
                account.end_all_holdings(account.at, now_ns)
            self._accounts[uuid] = DeviceAccount(uuid, self._ended, self._ids, account.timeline)
        self._due_ns = min(self._due_ns, self._ended.due_ns)
        self._dirty = True

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
            found = account.usage()
            if found is None or (uuid in self._instances and _is_empty(found)):
                continue
            devices[uuid] = found
            left_out += len(account.containers.rejected)
        ended, lost = self._ended.holdings(), self._ended.evicted
        if (
            known is None
            or (left_out, lost) != (known.rejected_containers, known.ended_evicted)
            or ended is not known.ended
            or not _same(devices, known.devices)
        ):
            self._usage = known = Usage(devices, left_out, ended, lost)
        return known


def _is_empty(found: DeviceUsage) -> bool:
    return found.energy_mj is None and not found.elapsed_ns


def _same(found: Mapping[str, DeviceUsage], known: Mapping[str, DeviceUsage]) -> bool:
    return list(found) == list(known) and all(known[uuid] is one for uuid, one in found.items())
