"""Build usage accounts for tests, in which each total is the sum of its parts."""

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
    recent: int | None = None,
    contested: int | None = None,
    switching: int | None = None,
) -> ContainerUsage:
    """Return the account of a container, in bytes, nanoseconds, millijoules and millionths.

    The default of its id is made of its names and its start.
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
        recent_busy_ppm=recent,
        contested_ns=contested,
        switching_ns=switching,
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
    contested: int | None = None,
    switching: int | None = None,
) -> Holding:
    """Return a holding of a container on a device.

    Args:
        pod: the name of the pod.
        device: the device.
        namespace: the namespace of the pod.
        container: the name of the container.
        uid: the UID of the pod; by default `u-` and its name.
        info: information about the pod.
        source: the source of the claim; empty, without evidence, if only processes show the use.
        evidence: the evidence of the claim.
        start: the start of the holding.
        end: its end; None for a current holding.
        until: the last usage sample of a current holding; by default the start.
        gap: the part of its time without usage samples, in nanoseconds.
        held: the held time in nanoseconds; by default the time with usage samples.
        busy: the busy time in nanoseconds; None if unknown.
        energy: the energy in millijoules.
        peak: the highest memory in bytes; by default the mean.
        mean: the mean memory in bytes; None if unknown.
        busy_peak: the highest busy ratio in millionths.
        xids: codes and counts of XID errors.
        serial: the serial number of its end.
        own_id: its id; by default made of the device, the container and the start.
        contested: the contested part of the busy time in nanoseconds; None if unknown.
        switching: the part of the busy time for switching, in nanoseconds; None if unknown.
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
        contested_ns=contested,
        switching_ns=switching,
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
    """Return a container that is affected by an XID error."""
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
    """Return an XID error with the affected containers."""
    uuid = device if isinstance(device, str) else device.uuid
    affected = tuple(sorted(victims, key=lambda one: (one.subject, one.device)))
    return XidError(serial, uuid, code, when, affected, pid, process, revision)


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
    """Return the account of a device.

    Args:
        device: the device.
        containers: the accounts of its containers.
        start: the start of the account.
        until: the last usage sample; by default the start.
        memory: bytes of no container and not of the driver; None if the used memory is unknown.
        reserved: bytes that the driver reserves.
        busy: unattributed busy time; None if unknown.
        unheld: unattributed held time.
        energy: unattributed energy; None if unknown.
        forgotten: busy time, held time and energy of forgotten containers.
        unknown: the part of `unheld` for which the holders are unknown.
        own_id: its id; by default made of the device and the start.
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
    """Return the accounts of devices.

    Args:
        devices: the account of each device.
        left_out: the number of containers left out because of the limit.
        ended: ended holdings; those without a serial number get the next one.
        lost: the number of ended holdings that were dropped early.
    """
    numbered: list[Holding] = []
    for one in ended:
        after = numbered[-1].serial if numbered else 0
        numbered.append(one if one.serial else replace(one, serial=after + 1))
    return Usage({one.device: one for one in devices}, left_out, tuple(numbered), lost)


def with_usage(
    snapshot: Snapshot, *devices: DeviceUsage, ended: Iterable[Holding] = ()
) -> Snapshot:
    """Return the snapshot with these usage accounts."""
    return replace(snapshot, usage=usage(*devices, ended=ended))


_TOTALS = st.one_of(st.integers(0, 5), st.integers(0, 1 << 62))
_MAYBE = st.none() | _TOTALS
_NAMES = st.sampled_from(["", "a", "b", 'a"\n', "\ud800", "\ud801"])


def subjects() -> st.SearchStrategy[PartialRef]:
    """Generate containers, some of whose names look the same on a page."""
    return st.builds(PartialRef, _NAMES, _NAMES, _NAMES, _NAMES)


XIDS = st.dictionaries(st.integers(1, 200), st.integers(1, 1 << 40), max_size=3).map(
    lambda counts: tuple(sorted(counts.items()))
)
"""Codes of XID errors with their counts."""


def holdings(device: Device | str, *, ended: bool = True) -> st.SearchStrategy[Holding]:
    """Generate holdings on a device, ended or current, without serial numbers."""
    uuid = device if isinstance(device, str) else device.uuid

    def build(subject: PartialRef, times: tuple[int, int], **had: object) -> Holding:
        counted, gap = times
        over = Instant(START.mono_ns + counted + gap, START.wall_ns + counted + gap)
        known = Holding(uuid, subject, None, "", None, START, counted_ns=counted, gap_ns=gap, **had)  # type: ignore[arg-type]
        claim = {"source": "runtime", "evidence": Evidence.RUNTIME_CDI} if known.held_ns else {}
        return replace(known, end=over if ended else None, **claim)  # type: ignore[arg-type]

    return st.builds(
        build,
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
        contested_ns=_MAYBE,
        switching_ns=_MAYBE,
    )


def containers() -> st.SearchStrategy[list[ContainerUsage]]:
    """Generate accounts of containers of one device, each container once."""
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
        contested_ns=_MAYBE,
        switching_ns=_MAYBE,
    ).map(lambda one: one if one.ended is None else replace(one, memory_bytes=None))
    return st.lists(made, max_size=5, unique_by=lambda one: one.subject)


def usages(devices: Iterable[Device]) -> st.SearchStrategy[Usage]:
    """Generate accounts of some of these devices."""

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
