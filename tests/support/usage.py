"""Accounts of usage to test with, in which each quantity is the sum of its parts."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from pipeline.model import (
    ContainerUsage,
    Device,
    DeviceUsage,
    Evidence,
    Holding,
    Instant,
    PartialRef,
    PodInfo,
    Snapshot,
    Usage,
    XidError,
    XidVictim,
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
    xids: tuple[tuple[int, int], ...] = (),
    holding: Holding | None = None,
    own_id: str | None = None,
    closing: tuple[Holding, ...] = (),
) -> ContainerUsage:
    """What a container had: bytes, nanoseconds, millijoules.

    Its id is made of its names and its start, if none is given.
    """
    subject = _subject(pod, namespace, container, uid)
    made = f"{namespace}/{pod}/{container}/{subject.uid} {start.wall_ns}"
    own_id = made if own_id is None else own_id
    return ContainerUsage(
        subject,
        info,
        start,
        ended,
        memory,
        busy,
        held,
        energy,
        xids,
        holding,
        own_id,
        closing=closing,
    )


def _subject(pod: str, namespace: str, container: str, uid: str | None) -> PartialRef:
    return PartialRef(namespace, pod, container, f"u-{pod}" if uid is None else uid)


def holding(
    pod: str,
    device: Device | str,
    *,
    namespace: str = "ml",
    container: str = "main",
    uid: str | None = None,
    info: PodInfo | None = None,
    source: str = "runtime",
    evidence: Evidence | None = Evidence.RUNTIME_CDI,
    start: Instant = START,
    end: Instant | None = None,
    until: Instant | None = None,
    gap: int = 0,
    held: int | None = None,
    busy: int | None = None,
    energy: int | None = None,
    peak: int | None = None,
    mean: int | None = None,
    busy_peak: int | None = None,
    xids: tuple[tuple[int, int], ...] = (),
    serial: int = 0,
    own_id: str | None = None,
) -> Holding:
    """A container's time on a device.

    Args:
        pod: its pod.
        device: the device.
        namespace: of the pod.
        container: its name.
        uid: of the pod; `u-` and its name, if none is given.
        info: what is known of the pod.
        source: by whose word; empty, with no evidence, where it is known by processes alone.
        evidence: what that rests on.
        start: when it began.
        end: when it ended; None while it goes on.
        until: the last look at one that goes on; the start, if none is given.
        gap: of its time, what nobody counted, in nanoseconds.
        held: in nanoseconds; the whole of what was counted, if none is given.
        busy: likewise, known for all that was counted; None where that was never known.
        energy: in millijoules.
        peak: the most memory that it had, in bytes; the mean, if none is given.
        mean: its mean memory, known for all that was counted; None where that was never known.
        busy_peak: in millionths.
        xids: code and count of errors.
        serial: of its end.
        own_id: identifies it; made of the device, the container and the start, if none is given.
    """
    over = end or until or start
    counted = over.mono_ns - start.mono_ns - gap
    uuid = device if isinstance(device, str) else device.uuid
    subject = _subject(pod, namespace, container, uid)
    made = f"{uuid}-{namespace}-{pod}-{container}-{subject.uid}-{start.wall_ns}"
    return Holding(
        uuid,
        subject,
        info,
        source,
        evidence if source else None,
        start,
        end,
        counted_ns=counted,
        gap_ns=gap,
        held_ns=counted if held is None else held,
        busy_ns=busy,
        energy_mj=energy,
        memory_peak_bytes=mean if peak is None else peak,
        memory_byte_ns=0 if mean is None else mean * counted,
        memory_ns=0 if mean is None else counted,
        busy_time_ns=0 if busy is None else counted,
        busy_peak_ppm=busy_peak,
        xids=xids,
        serial=serial,
        id=made if own_id is None else own_id,
    )


def victim(
    pod: str,
    device: Device | str,
    *,
    namespace: str = "ml",
    container: str = "main",
    uid: str | None = None,
    info: PodInfo | None = None,
    holds: bool = True,
    uses: bool = True,
    caused: bool = False,
) -> XidVictim:
    """A container that an XID error struck."""
    subject = _subject(pod, namespace, container, uid)
    uuid = device if isinstance(device, str) else device.uuid
    return XidVictim(subject, info, uuid, holds, uses, caused)


def xid_error(
    device: Device | str,
    code: int,
    *victims: XidVictim,
    serial: int = 1,
    when: Instant = START,
    pid: int | None = None,
    process: str = "",
    revision: int = 0,
) -> XidError:
    """An XID error and whom it struck."""
    uuid = device if isinstance(device, str) else device.uuid
    struck = tuple(sorted(victims, key=lambda one: (one.subject, one.device)))
    return XidError(serial, uuid, code, when, struck, pid, process, revision)


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
    unknown: int = 0,
    own_id: str | None = None,
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
        unknown: of what nobody held, the time for which nobody told who holds it.
        own_id: identifies it; made of the device and the start, if none is given.
    """
    of_memory = sum(one.memory_bytes or 0 for one in containers)
    of_busy = sum(one.busy_ns or 0 for one in containers) + forgotten[0]
    of_held = sum(one.held_ns for one in containers) + forgotten[1]
    of_energy = sum(one.energy_mj or 0 for one in containers) + forgotten[2]
    uuid = device if isinstance(device, str) else device.uuid
    return DeviceUsage(
        device=uuid,
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
        unknown_ns=unknown,
        id=f"{uuid} {start.wall_ns}" if own_id is None else own_id,
    )


def usage(
    *devices: DeviceUsage, left_out: int = 0, ended: Iterable[Holding] = (), lost: int = 0
) -> Usage:
    """Accounts of devices.

    Args:
        devices: one of each.
        left_out: how many containers found no room.
        ended: holdings that have ended; those without a serial get the next.
        lost: how many of those were let go of early.
    """
    numbered: list[Holding] = []
    for one in ended:
        after = numbered[-1].serial if numbered else 0
        numbered.append(one if one.serial else replace(one, serial=after + 1))
    return Usage({one.device: one for one in devices}, left_out, tuple(numbered), lost)


def with_usage(
    snapshot: Snapshot, *devices: DeviceUsage, ended: Iterable[Holding] = ()
) -> Snapshot:
    """The same snapshot, with an account of usage."""
    return replace(snapshot, usage=usage(*devices, ended=ended))


_TOTALS = st.one_of(st.integers(0, 5), st.integers(0, 1 << 62))
_MAYBE = st.none() | _TOTALS
_NAMES = st.sampled_from(["", "a", "b", 'a"\n', "\ud800", "\ud801"])


def subjects() -> st.SearchStrategy[PartialRef]:
    """Containers, among them some whose names can't be told apart on a page."""
    return st.builds(PartialRef, _NAMES, _NAMES, _NAMES, _NAMES)


XIDS = st.dictionaries(st.integers(1, 200), st.integers(1, 1 << 40), max_size=3).map(
    lambda counts: tuple(sorted(counts.items()))
)
"""Codes of XID errors, with how often each was."""


def holdings(device: Device | str, *, ended: bool = True) -> st.SearchStrategy[Holding]:
    """Times of containers on a device, over or going on; without serials."""
    uuid = device if isinstance(device, str) else device.uuid

    def made(subject: PartialRef, times: tuple[int, int], **had: object) -> Holding:
        counted, gap = times
        over = Instant(START.mono_ns + counted + gap, START.wall_ns + counted + gap)
        known = Holding(uuid, subject, None, "", None, START, counted_ns=counted, gap_ns=gap, **had)  # type: ignore[arg-type]
        word = {"source": "runtime", "evidence": Evidence.RUNTIME_CDI} if known.held_ns else {}
        return replace(known, end=over if ended else None, **word)  # type: ignore[arg-type]

    return st.builds(
        made,
        subjects(),
        st.tuples(st.integers(0, 1 << 61), st.integers(0, 1 << 61)),
        held_ns=_TOTALS,
        busy_ns=_MAYBE,
        energy_mj=_MAYBE,
        memory_peak_bytes=_MAYBE,
        memory_byte_ns=st.integers(0, 1 << 100),
        memory_ns=_TOTALS,
        busy_time_ns=_TOTALS,
        busy_peak_ppm=st.none() | st.integers(0, 1_000_000),
        xids=XIDS,
    )


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
