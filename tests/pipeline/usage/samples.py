"""Usage samples, accounts and invariants for the tests of usage."""

from collections.abc import Iterable

from pipeline.model import (
    NS,
    Attribution,
    ContainerUsage,
    Device,
    DeviceUsage,
    DeviceUse,
    Evidence,
    Holder,
    PartialRef,
    ProcessUse,
    Usage,
)
from pipeline.usage import ContainerName, ProcessSample, UsageAccounts
from tests.support.nodes import START, at, gpu

S = NS
MS = NS // 1000
GPU = gpu(0)


def name(pod: str, container: str = "main", uid: str = "") -> ContainerName:
    return ("ml", pod, container, uid or f"uid-{pod}")


def process(
    owner: ContainerName | str | None = None,
    *,
    memory: int | None = 0,
    busy: int | None = None,
    known: bool = True,
    there: bool = True,
    client: bool = False,
) -> ProcessSample:
    """Return a process of a container or pod, of none, or (not `known`) of unknown owner."""
    container = name(owner) if isinstance(owner, str) else owner
    return ProcessSample(container, known, None, there, memory, busy, client)


def holder(pod: str, share: float | None = None, *, container_id: str = "") -> Holder:
    ref = PartialRef("ml", pod, "main", f"uid-{pod}", container_id)
    return Holder(ref, share, START, "runtime", Evidence.RUNTIME_CDI)


def use(
    device: Device | str,
    when: float,
    since: float | None,
    *processes: ProcessUse,
    used: int | None = 0,
    reserved: int | None = 0,
    busy: int | None = None,
    energy: int | None = None,
    good_for: float = 15,
    listed: bool = True,
    mps: bool = False,
) -> DeviceUse:
    uuid = device if isinstance(device, str) else device.uuid
    start = None if since is None else at(since)
    good_for_ns = round(good_for * NS)
    return DeviceUse(
        uuid, at(when), start, processes, used, reserved, busy, energy, good_for_ns, listed, mps
    )


class Book:
    """Usage accounts of a few devices, with a method for each input that the join gives them."""

    def __init__(self, *devices: Device) -> None:
        self.accounts = UsageAccounts()
        self.attributions = {d.uuid: Attribution(d, True, ()) for d in devices or (GPU,)}
        self.accounts.update_holders(self.attributions, at(0))

    def hold(self, when: float, *holders: Holder, device: Device = GPU) -> None:
        self.attributions[device.uuid] = Attribution(device, True, holders)
        self.accounts.update_holders(self.attributions, at(when))

    def set_devices(self, when: float, *devices: Device) -> None:
        """Make these the only devices of the node."""
        known = self.attributions
        self.attributions = {d.uuid: known.get(d.uuid, Attribution(d, True, ())) for d in devices}
        self.accounts.update_holders(self.attributions, at(when))

    def add(
        self,
        when: float,
        since: float | None,
        *processes: ProcessSample,
        device: Device = GPU,
        source: str = "gpus",
        used: int | None = 0,
        reserved: int | None = 0,
        busy: int | None = None,
        energy: int | None = None,
        listed: bool = True,
        mps: bool = False,
    ) -> bool:
        sample = use(
            device,
            when,
            since,
            used=used,
            reserved=reserved,
            busy=busy,
            energy=energy,
            listed=listed,
            mps=mps,
        )
        return self.accounts.add_sample(source, device.uuid, sample, processes)

    def sample(  # type: ignore[no-untyped-def]
        self,
        when: float,
        since: float | None,
        *processes: ProcessSample,
        device: Device = GPU,
        **sample,
    ) -> DeviceUsage:
        self.add(when, since, *processes, device=device, **sample)
        return self.account(device)

    def usage(self) -> Usage:
        usage = self.accounts.usage()
        for account in usage.devices.values():
            adds_up(account)
        return usage

    def account(self, device: Device = GPU) -> DeviceUsage:
        return self.usage().devices[device.uuid]

    def held(self, device: Device = GPU) -> dict[str, int]:
        """Held time by pod, in nanoseconds."""
        return {one.subject.pod: one.held_ns for one in self.account(device).containers}


def container(account: DeviceUsage, pod: str) -> ContainerUsage:
    [found] = [one for one in account.containers if one.subject.pod == pod]
    return found


def by_pod(containers: Iterable[ContainerUsage], what: str) -> dict[str, int | None]:
    return {one.subject.pod: getattr(one, what) for one in containers}


def adds_up(account: DeviceUsage) -> None:
    """Check that each total is exactly the sum of its parts."""
    containers = account.containers
    assert [one.subject for one in containers] == sorted(one.subject for one in containers)
    assert not any(one.subject.container_id for one in containers)
    sample = (account.memory_used_bytes, account.memory_reserved_bytes)
    if account.memory_unattributed_bytes is None:
        assert sample == (None, None)
    else:
        memory = sum(one.memory_bytes or 0 for one in containers)
        reserved = account.memory_reserved_bytes
        assert reserved is not None
        assert account.memory_used_bytes == memory + reserved + account.memory_unattributed_bytes
    over = [one for one in containers if one.ended is not None]
    assert all(one.memory_bytes is None for one in over)
    assert all((one.holding is None) == (one.ended is not None) for one in containers)
    assert all(one.ended.mono_ns >= one.start.mono_ns for one in over if one.ended)
    busy = sum(one.busy_ns or 0 for one in containers) + account.forgotten_busy_ns
    assert (account.busy_ns or 0) == busy + (account.busy_unattributed_ns or 0)
    assert (account.busy_ns is None) == (account.busy_unattributed_ns is None)
    held = sum(one.held_ns for one in containers) + account.forgotten_held_ns
    assert account.elapsed_ns == held + account.unheld_ns
    energy = sum(one.energy_mj or 0 for one in containers) + account.forgotten_energy_mj
    assert (account.energy_mj or 0) == energy + (account.energy_unattributed_mj or 0)
    assert (account.energy_mj is None) == (account.energy_unattributed_mj is None)
    parts = [account.unheld_ns, account.busy_unattributed_ns, account.energy_unattributed_mj]
    parts += [account.memory_unattributed_bytes, account.memory_reserved_bytes]
    parts += [n for c in containers for n in (c.memory_bytes, c.busy_ns, c.held_ns, c.energy_mj)]
    for each in containers:
        # Unknown together; a container without busy time has neither.
        assert (each.contested_ns is None) == (each.switching_ns is None)
        assert each.busy_ns is not None or each.contested_ns is None
        parts += [each.contested_ns, each.switching_ns]
    assert all(part is None or part >= 0 for part in parts)
