"""Accounts of usage to test with, in which each quantity is the sum of its parts."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from pipeline.model import (
    ContainerUsage,
    Device,
    DeviceUsage,
    Instant,
    PartialRef,
    PodInfo,
    Snapshot,
    Usage,
)
from tests.support.nodes import START, at


def used(
    pod: str,
    *,
    namespace: str = "ml",
    container: str = "main",
    uid: str | None = None,
    start: Instant = START,
    ended: Instant | None = None,
    memory: int | None = None,
    busy: int | None = None,
    held: int = 0,
    energy: int | None = None,
    info: PodInfo | None = None,
) -> ContainerUsage:
    """What a container had: bytes, nanoseconds, millijoules."""
    subject = PartialRef(namespace, pod, container, f"u-{pod}" if uid is None else uid)
    return ContainerUsage(subject, info, start, ended, memory, busy, held, energy)


def account(
    device: Device | str,
    *containers: ContainerUsage,
    start: Instant = START,
    until: Instant | None = None,
    memory: int | None = 0,
    reserved: int = 0,
    busy: int | None = 0,
    unheld: int = 0,
    energy: int | None = 0,
    forgotten: tuple[int, int, int] = (0, 0, 0),
) -> DeviceUsage:
    """The account of a device.

    Args:
        device: the device.
        containers: what they had.
        start: of the account.
        until: its last look; the start, if none is given.
        memory: what belongs to no container, nor to the driver; None where `used` is unknown.
        reserved: what the driver keeps.
        busy: what no container did; None where that was never known.
        unheld: what nobody held.
        energy: what falls to no container; None where that was never known.
        forgotten: busy, held and energy of containers that are kept no more.
    """
    of_memory = sum(one.memory_bytes or 0 for one in containers)
    of_busy = sum(one.busy_ns or 0 for one in containers) + forgotten[0]
    of_held = sum(one.held_ns for one in containers) + forgotten[1]
    of_energy = sum(one.energy_mj or 0 for one in containers) + forgotten[2]
    return DeviceUsage(
        device=device if isinstance(device, str) else device.uuid,
        start=start,
        at=start if until is None else until,
        containers=tuple(sorted(containers, key=lambda one: one.subject)),
        memory_used_bytes=None if memory is None else memory + reserved + of_memory,
        memory_reserved_bytes=None if memory is None else reserved,
        memory_unattributed_bytes=memory,
        busy_ns=None if busy is None else busy + of_busy,
        busy_unattributed_ns=busy,
        elapsed_ns=unheld + of_held,
        unheld_ns=unheld,
        energy_mj=None if energy is None else energy + of_energy,
        energy_unattributed_mj=energy,
        forgotten_busy_ns=forgotten[0],
        forgotten_held_ns=forgotten[1],
        forgotten_energy_mj=forgotten[2],
    )


def usage(*devices: DeviceUsage, left_out: int = 0) -> Usage:
    return Usage({one.device: one for one in devices}, left_out)


def with_usage(snapshot: Snapshot, *devices: DeviceUsage) -> Snapshot:
    """The same snapshot, with an account of usage."""
    return replace(snapshot, usage=usage(*devices))


_TOTALS = st.one_of(st.integers(0, 5), st.integers(0, 1 << 62))
_MAYBE = st.none() | _TOTALS
_NAMES = st.sampled_from(["", "a", "b", 'a"\n', "\ud800", "\ud801"])


def subjects() -> st.SearchStrategy[PartialRef]:
    """Containers, among them some whose names can't be told apart on a page."""
    return st.builds(PartialRef, _NAMES, _NAMES, _NAMES, _NAMES)


def containers() -> st.SearchStrategy[list[ContainerUsage]]:
    """What containers of one device had, each of them once."""
    made = st.builds(
        ContainerUsage,
        subjects(),
        st.none(),
        st.just(START),
        st.none() | st.just(at(1)),
        _MAYBE,
        _MAYBE,
        _TOTALS,
        _MAYBE,
    ).map(lambda one: one if one.ended is None else replace(one, memory_bytes=None))
    return st.lists(made, max_size=5, unique_by=lambda one: one.subject)


def usages(devices: Iterable[Device]) -> st.SearchStrategy[Usage]:
    """Accounts of some of these devices."""

    def of(device: Device) -> st.SearchStrategy[DeviceUsage]:
        return st.builds(
            lambda had, memory, reserved, busy, unheld, energy, gone: account(
                device,
                *had,
                memory=memory,
                reserved=reserved,
                busy=busy,
                unheld=unheld,
                energy=energy,
                forgotten=gone,
            ),
            containers(),
            _MAYBE,
            _TOTALS,
            _MAYBE,
            _TOTALS,
            _MAYBE,
            st.tuples(_TOTALS, _TOTALS, _TOTALS),
        )

    chosen = st.lists(st.sampled_from(list(devices)), unique_by=lambda device: device.uuid)
    return chosen.flatmap(lambda those: st.tuples(*map(of, those))).map(lambda all_: usage(*all_))
