"""Whose each use is, where a pid may have been used again and a process may have ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import NS, GpuProcess, Instant, PartialRef, ProcessUse
from sources.nvml.process_owners import UNKNOWN, PidRecord, Process
from sources.nvml.process_utilization import ProcessBusyTime
from sources.nvml.sample_owners import pids, to_device_use
from sources.nvml.usage_sample import RawDeviceUse

WALL_S = 1_700_000_000
OLD = Process(100, PartialRef(uid="old"))
NEW = Process(900, PartialRef(uid="new"))
HOST = Process(5, PartialRef())
GIB = 1 << 30


def at(seconds: float) -> Instant:
    ns = round(seconds * NS)
    return Instant(ns, WALL_S * NS + ns)


def us(seconds: float) -> int:
    return round((WALL_S + seconds) * 1e6)


SINCE, NOW = at(5), at(10)
BUSY = 2 * NS
LISTED = (GpuProcess(7, "compute", GIB),)
ENTRY = {7: ProcessBusyTime(BUSY, us(9))}


def seen(**changes: object) -> RawDeviceUse:
    made = {"listed": LISTED, "utilization": ENTRY, **changes}
    return RawDeviceUse(
        "GPU-1",
        NOW,
        SINCE,
        memory_used_bytes=3 * GIB,
        memory_reserved_bytes=GIB,
        energy_mj=5,
        **made,  # type: ignore[arg-type]
    )


def began(seconds: float, before: Process | None = None, seen_at: float = 5.1) -> PidRecord:
    return PidRecord(NEW, us(seconds), before, round(seen_at * NS))


def ended(process: Process, seen_at: float = 5.1) -> PidRecord:
    return PidRecord(previous=process, seen_ns=round(seen_at * NS))


def use(process: Process | None, kind: str, memory: int | None, busy: int | None) -> ProcessUse:
    started, owner = (None, None) if process is None else (process.started, process.owner)
    return ProcessUse(7, started, owner, kind, memory, busy)  # type: ignore[arg-type]


CASES: dict[str, tuple[RawDeviceUse, PidRecord, list[ProcessUse]]] = {
    "one that was there before": (seen(), PidRecord(NEW), [use(NEW, "compute", GIB, BUSY)]),
    "one of the host's": (seen(), PidRecord(HOST), [use(HOST, "compute", GIB, BUSY)]),
    "one that did nothing": (seen(utilization={}), PidRecord(NEW), [use(NEW, "compute", GIB, 0)]),
    "one that began meanwhile": (seen(), began(8), [use(NEW, "compute", GIB, BUSY)]),
    "one that began as it was found at work": (
        seen(),
        began(9.01),
        [use(NEW, "compute", GIB, BUSY)],
    ),
    "what was done before it began was done by one that nobody saw": (
        seen(),
        began(9.5),
        [use(None, "", 0, BUSY), use(NEW, "compute", GIB, 0)],
    ),
    "what was done before it began was done by the one before it": (
        seen(),
        began(9.5, OLD),
        [use(OLD, "", 0, BUSY), use(NEW, "compute", GIB, 0)],
    ),
    "but not by one that was gone long ago": (
        seen(),
        began(9.5, OLD, seen_at=4),
        [use(None, "", 0, BUSY), use(NEW, "compute", GIB, 0)],
    ),
    "a mean over both is nobody's": (
        seen(),
        began(8, OLD),
        [use(None, "", 0, BUSY), use(NEW, "compute", GIB, 0)],
    ),
    "nor where nobody knows when the one there began": (
        seen(),
        PidRecord(NEW, None, OLD, round(5.1 * NS)),
        [use(None, "", 0, BUSY), use(NEW, "compute", GIB, 0)],
    ),
    "one that has ended": (seen(listed=()), ended(OLD), [use(OLD, "", 0, BUSY)]),
    "one that ended and was last there before the look before": (
        seen(listed=()),
        ended(OLD, seen_at=4.9),
        [use(None, "", 0, BUSY)],
    ),
    "one that nobody ever saw": (seen(listed=()), UNKNOWN, [use(None, "", 0, BUSY)]),
    "one that let go of the device": (seen(listed=()), PidRecord(NEW), [use(NEW, "", 0, BUSY)]),
    "one that ended after it was listed": (seen(), ended(OLD), [use(OLD, "compute", GIB, BUSY)]),
    "one that ended then, and was never seen": (
        seen(),
        UNKNOWN,
        [use(None, "compute", GIB, BUSY)],
    ),
    "one that took the pid after the list was made": (
        seen(utilization={}),
        began(10.5, OLD),
        [use(OLD, "compute", GIB, 0)],
    ),
    "at the first look nobody did anything": (
        seen(utilization=None),
        PidRecord(NEW),
        [use(NEW, "compute", GIB, None)],
    ),
    "no lists": (seen(listed=None), PidRecord(NEW), [use(NEW, "", None, BUSY)]),
    "neither": (seen(listed=None, utilization=None), UNKNOWN, []),
}


@pytest.mark.parametrize(("what", "found", "expected"), CASES.values(), ids=CASES.keys())
def test_each_use_goes_to_whom_its_time_says(
    what: RawDeviceUse, found: PidRecord, expected: list[ProcessUse]
) -> None:
    made = to_device_use(what, {7: found}, 15)
    assert list(made.processes) == expected
    assert made.listed is (what.listed is not None)
    assert made.busy_ns == (
        None if what.utilization is None else sum(e.busy_ns or 0 for e in expected)
    )


def test_the_rest_is_reported_as_it_was_seen() -> None:
    made = to_device_use(seen(), {}, 15)
    assert (made.device, made.at, made.since, made.good_for_ns) == ("GPU-1", NOW, SINCE, 15)
    assert (made.memory_used_bytes, made.memory_reserved_bytes) == (3 * GIB, GIB)
    assert made.energy_mj == 5
    assert made.processes == (use(None, "compute", GIB, BUSY),), (
        "with a /proc that isn't the host's"
    )


def test_what_an_instance_was_busy_is_unattributed_own() -> None:
    made = to_device_use(seen(utilization=None, busy_ns=12), {7: PidRecord(NEW)}, 15)
    assert made.busy_ns == 12
    assert [one.busy_ns for one in made.processes] == [None]


KINDS = {
    "a client of MPS": ([("compute", GIB), ("mps", GIB)], "mps", GIB),
    "one that draws and computes": ([("compute", GIB), ("graphics", GIB)], "compute", GIB),
    "one that draws": ([("graphics", 5)], "graphics", 5),
    "a list that tells less": ([("compute", 3), ("mps", None)], "mps", 3),
    "nothing told": ([("compute", None)], "compute", None),
    "none": ([("compute", 0)], "compute", 0),
}


@pytest.mark.parametrize(("listed", "kind", "memory"), KINDS.values(), ids=KINDS.keys())
def test_a_process_in_several_lists_has_its_memory_once(
    listed: list[tuple[str, int | None]], kind: str, memory: int | None
) -> None:
    processes = tuple(GpuProcess(7, name, size) for name, size in listed)  # type: ignore[arg-type]
    for order in (processes, processes[::-1]):
        (made,) = to_device_use(seen(listed=order), {7: PidRecord(NEW)}, 15).processes
        assert (made.kind, made.memory_bytes, made.busy_ns) == (kind, memory, BUSY)


SERVER = Process(50, PartialRef(uid="mps-daemon"), is_mps_server=True)
ALL = 5 * NS
MPS: dict[
    str, tuple[list[tuple[int, str]], dict[int, Process], dict[int, int], dict[int, int | None]]
]
MPS = {
    "what clients do stands in the server's entry": (
        [(1, "compute"), (2, "compute"), (2, "mps"), (3, "compute"), (3, "mps")],
        {1: SERVER},
        {1: ALL},
        {1: None, 2: None, 3: None},
    ),
    "a server that nobody can recognise": (
        [(1, "compute"), (2, "mps"), (3, "mps")],
        {},
        {1: ALL},
        {1: None, 2: None, 3: None},
    ),
    "a process beside them has an entry of its own": (
        [(1, "compute"), (2, "mps"), (4, "compute")],
        {1: SERVER},
        {1: 3 * NS, 4: NS},
        {1: None, 2: None, 4: NS},
    ),
    "but which of two is the server's?": (
        [(1, "compute"), (2, "mps"), (4, "compute")],
        {},
        {1: 3 * NS, 4: NS},
        {1: None, 2: None, 4: None},
    ),
    "one without an entry may be a client that the driver doesn't call one": (
        [(1, "compute"), (4, "compute")],
        {1: SERVER},
        {1: ALL},
        {1: None, 4: None},
    ),
    "clients that came and went": ([(1, "compute")], {1: SERVER}, {1: ALL}, {1: None}),
    "a server that has ended": ([], {1: SERVER}, {1: ALL}, {1: None}),
    "a client that has an entry of its own is one like any other": (
        [(2, "mps")],
        {},
        {2: ALL},
        {2: ALL},
    ),
}


@pytest.mark.parametrize(("listed", "known", "entries", "expected"), MPS.values(), ids=MPS.keys())
def test_t4_what_mps_clients_do_is_unknown_and_never_the_servers(
    listed: list[tuple[int, str]],
    known: dict[int, Process],
    entries: dict[int, int],
    expected: dict[int, int | None],
) -> None:
    lists = tuple(GpuProcess(pid, kind, GIB) for pid, kind in listed)  # type: ignore[arg-type]
    given_out = {pid: ProcessBusyTime(busy, us(9)) for pid, busy in entries.items()}
    found = {pid: PidRecord(process) for pid, process in known.items()}
    made = to_device_use(seen(listed=lists, utilization=given_out), found, 15)
    assert {one.pid: one.busy_ns for one in made.processes} == expected
    assert made.busy_ns == sum(entries.values()), "the device's own is known all the same"
    assert made.mps is (None in expected.values())


def test_all_that_were_seen_are_looked_up() -> None:
    other = seen(listed=None, utilization={9: ProcessBusyTime(1, 1)})
    assert pids([seen(), other, seen(listed=None, utilization=None)]) == {7, 9}


PROCESSES = st.one_of(st.none(), st.builds(Process, st.integers(1, 9), st.just(OLD.owner)))
FOUND = st.builds(
    PidRecord,
    PROCESSES,
    st.one_of(st.none(), st.integers(us(4), us(11))),
    PROCESSES,
    st.integers(4 * NS, 6 * NS),
)
PIDS = st.integers(1, 4)
ENTRIES = st.dictionaries(
    PIDS, st.builds(ProcessBusyTime, st.integers(0, BUSY), st.integers(us(5), us(10)))
)
GPU_PROCESSES = st.builds(
    GpuProcess,
    PIDS,
    st.sampled_from(["compute", "graphics", "mps"]),
    st.one_of(st.none(), st.integers(0, GIB)),
)


@given(
    listed=st.lists(GPU_PROCESSES, unique_by=lambda one: (one.pid, one.kind)),
    entries=ENTRIES,
    found=st.dictionaries(PIDS, FOUND),
)
def test_nothing_is_lost_and_nothing_is_reported_twice(
    listed: list[GpuProcess], entries: dict[int, ProcessBusyTime], found: dict[int, PidRecord]
) -> None:
    made = to_device_use(seen(listed=tuple(listed), utilization=entries), found, 15)
    assert made.busy_ns == min(sum(e.busy_ns for e in entries.values()), 5 * NS)
    given_out = sum(one.busy_ns or 0 for one in made.processes)
    assert given_out <= made.busy_ns if made.mps else given_out == made.busy_ns
    assert sorted(one.pid for one in made.processes if one.kind) == sorted({p.pid for p in listed})
    order = [(one.pid, one.started or 0) for one in made.processes]
    assert order == sorted(order)
    for one in made.processes:
        who = found.get(one.pid, UNKNOWN)
        owners = {process.owner for process in (who.current, who.previous) if process is not None}
        assert one.owner is None or one.owner in owners
