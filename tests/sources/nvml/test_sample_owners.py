"""Owners of usage, if a pid may have been reused or a process may have ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import NS, DeviceUse, GpuProcess, Instant, PartialRef, ProcessUse
from sources.nvml.gpu_usage_sampler import RawDeviceUse
from sources.nvml.process_owners import UNKNOWN, PidRecord, Process
from sources.nvml.process_utilization import ProcessBusyTime
from sources.nvml.sample_owners import pids, to_device_use

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


def raw_use(busy_ns: int | None = None, **changes: object) -> RawDeviceUse:
    use = DeviceUse("GPU-1", NOW, SINCE, (), 3 * GIB, GIB, busy_ns, 5, 0)
    fields = {"listed": LISTED, "utilization": ENTRY, **changes}
    return RawDeviceUse(use, **fields)  # type: ignore[arg-type]


def started(seconds: float, previous: Process | None = None, seen_at: float = 5.1) -> PidRecord:
    return PidRecord(NEW, us(seconds), previous, round(seen_at * NS))


def ended(process: Process, seen_at: float = 5.1) -> PidRecord:
    return PidRecord(previous=process, seen_ns=round(seen_at * NS))


def expected_use(
    process: Process | None, kind: str, memory: int | None, busy: int | None
) -> ProcessUse:
    started, owner = (None, None) if process is None else (process.started, process.owner)
    return ProcessUse(7, started, owner, kind, memory, busy)  # type: ignore[arg-type]


CASES: dict[str, tuple[RawDeviceUse, PidRecord, list[ProcessUse]]] = {
    "a known process": (raw_use(), PidRecord(NEW), [expected_use(NEW, "compute", GIB, BUSY)]),
    "a process of the host": (
        raw_use(),
        PidRecord(HOST),
        [expected_use(HOST, "compute", GIB, BUSY)],
    ),
    "an idle process": (
        raw_use(utilization={}),
        PidRecord(NEW),
        [expected_use(NEW, "compute", GIB, 0)],
    ),
    "a process that started since the last sample": (
        raw_use(),
        started(8),
        [expected_use(NEW, "compute", GIB, BUSY)],
    ),
    "a process that was busy right after its start": (
        raw_use(),
        started(9.01),
        [expected_use(NEW, "compute", GIB, BUSY)],
    ),
    "busy time before the start, and no previous process": (
        raw_use(),
        started(9.5),
        [expected_use(None, "", 0, BUSY), expected_use(NEW, "compute", GIB, 0)],
    ),
    "busy time before the start, and a previous process": (
        raw_use(),
        started(9.5, OLD),
        [expected_use(OLD, "", 0, BUSY), expected_use(NEW, "compute", GIB, 0)],
    ),
    "busy time before the start, and a previous process that ended earlier": (
        raw_use(),
        started(9.5, OLD, seen_at=4),
        [expected_use(None, "", 0, BUSY), expected_use(NEW, "compute", GIB, 0)],
    ),
    "busy time that spans both processes": (
        raw_use(),
        started(8, OLD),
        [expected_use(None, "", 0, BUSY), expected_use(NEW, "compute", GIB, 0)],
    ),
    "an unknown start time": (
        raw_use(),
        PidRecord(NEW, None, OLD, round(5.1 * NS)),
        [expected_use(None, "", 0, BUSY), expected_use(NEW, "compute", GIB, 0)],
    ),
    "a process that has ended": (raw_use(listed=()), ended(OLD), [expected_use(OLD, "", 0, BUSY)]),
    "a process that ended before the last sample": (
        raw_use(listed=()),
        ended(OLD, seen_at=4.9),
        [expected_use(None, "", 0, BUSY)],
    ),
    "a process that was never seen": (
        raw_use(listed=()),
        UNKNOWN,
        [expected_use(None, "", 0, BUSY)],
    ),
    "a process that released the device": (
        raw_use(listed=()),
        PidRecord(NEW),
        [expected_use(NEW, "", 0, BUSY)],
    ),
    "a process that ended after it was listed": (
        raw_use(),
        ended(OLD),
        [expected_use(OLD, "compute", GIB, BUSY)],
    ),
    "a process that ended after it was listed, and was never seen": (
        raw_use(),
        UNKNOWN,
        [expected_use(None, "compute", GIB, BUSY)],
    ),
    "a process that reused the pid after the list was read": (
        raw_use(utilization={}),
        started(10.5, OLD),
        [expected_use(OLD, "compute", GIB, 0)],
    ),
    "the first sample": (
        raw_use(utilization=None),
        PidRecord(NEW),
        [expected_use(NEW, "compute", GIB, None)],
    ),
    "no lists": (raw_use(listed=None), PidRecord(NEW), [expected_use(NEW, "", None, BUSY)]),
    "no lists and no utilization": (raw_use(listed=None, utilization=None), UNKNOWN, []),
}


@pytest.mark.parametrize(("raw", "record", "expected"), CASES.values(), ids=CASES.keys())
def test_usage_is_attributed_by_start_and_end_of_processes(
    raw: RawDeviceUse, record: PidRecord, expected: list[ProcessUse]
) -> None:
    result = to_device_use(raw, {7: record}, 15)
    assert list(result.processes) == expected
    assert result.listed is (raw.listed is not None)
    assert result.busy_ns == (
        None if raw.utilization is None else sum(e.busy_ns or 0 for e in expected)
    )


def test_the_other_values_of_a_sample_are_kept() -> None:
    result = to_device_use(raw_use(), {}, 15)
    assert (result.device, result.at, result.since, result.good_for_ns) == ("GPU-1", NOW, SINCE, 15)
    assert (result.memory_used_bytes, result.memory_reserved_bytes) == (3 * GIB, GIB)
    assert result.energy_mj == 5
    assert result.processes == (expected_use(None, "compute", GIB, BUSY),), (
        "no owner without the host's procfs"
    )


def test_busy_time_of_an_instance_is_of_the_device_only() -> None:
    result = to_device_use(raw_use(utilization=None, busy_ns=12), {7: PidRecord(NEW)}, 15)
    assert result.busy_ns == 12
    assert [one.busy_ns for one in result.processes] == [None]


KINDS = {
    "an MPS client": ([("compute", GIB), ("mps", GIB)], "mps", GIB),
    "compute and graphics": ([("compute", GIB), ("graphics", GIB)], "compute", GIB),
    "graphics only": ([("graphics", 5)], "graphics", 5),
    "a list without memory": ([("compute", 3), ("mps", None)], "mps", 3),
    "unknown memory": ([("compute", None)], "compute", None),
    "no memory": ([("compute", 0)], "compute", 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("listed", "kind", "memory"), KINDS.values(), ids=KINDS.keys())
def test_the_memory_of_a_process_in_several_lists_counts_once(
    listed: list[tuple[str, int | None]], kind: str, memory: int | None
) -> None:
    processes = tuple(GpuProcess(7, name, size) for name, size in listed)  # type: ignore[arg-type]
    for order in (processes, processes[::-1]):
        (result,) = to_device_use(raw_use(listed=order), {7: PidRecord(NEW)}, 15).processes
        assert (result.kind, result.memory_bytes, result.busy_ns) == (kind, memory, BUSY)


SERVER = Process(50, PartialRef(uid="mps-daemon"), is_mps_server=True)
ALL = 5 * NS
MPS: dict[
    str, tuple[list[tuple[int, str]], dict[int, Process], dict[int, int], dict[int, int | None]]
]
MPS = {
    "clients, whose busy time is in the server's entry": (
        [(1, "compute"), (2, "compute"), (2, "mps"), (3, "compute"), (3, "mps")],
        {1: SERVER},
        {1: ALL},
        {1: None, 2: None, 3: None},
    ),
    "a server that is not recognised": (
        [(1, "compute"), (2, "mps"), (3, "mps")],
        {},
        {1: ALL},
        {1: None, 2: None, 3: None},
    ),
    "another process with its own entry": (
        [(1, "compute"), (2, "mps"), (4, "compute")],
        {1: SERVER},
        {1: 3 * NS, 4: NS},
        {1: None, 2: None, 4: NS},
    ),
    "two entries, and a server that is not recognised": (
        [(1, "compute"), (2, "mps"), (4, "compute")],
        {},
        {1: 3 * NS, 4: NS},
        {1: None, 2: None, 4: None},
    ),
    "a process without an entry, which may be a client": (
        [(1, "compute"), (4, "compute")],
        {1: SERVER},
        {1: ALL},
        {1: None, 4: None},
    ),
    "clients that have ended": ([(1, "compute")], {1: SERVER}, {1: ALL}, {1: None}),
    "a server that has ended": ([], {1: SERVER}, {1: ALL}, {1: None}),
    "a client with its own entry": (
        [(2, "mps")],
        {},
        {2: ALL},
        {2: ALL},
    ),
}


@pytest.mark.parametrize(("listed", "known", "entries", "expected"), MPS.values(), ids=MPS.keys())
def test_t4_busy_time_of_mps_clients_is_unknown_and_not_the_server_s(
    listed: list[tuple[int, str]],
    known: dict[int, Process],
    entries: dict[int, int],
    expected: dict[int, int | None],
) -> None:
    lists = tuple(GpuProcess(pid, kind, GIB) for pid, kind in listed)  # type: ignore[arg-type]
    utilization = {pid: ProcessBusyTime(busy, us(9)) for pid, busy in entries.items()}
    records = {pid: PidRecord(process) for pid, process in known.items()}
    result = to_device_use(raw_use(listed=lists, utilization=utilization), records, 15)
    assert {one.pid: one.busy_ns for one in result.processes} == expected
    assert result.busy_ns == sum(entries.values()), "the busy time of the device is known"
    assert result.mps is (None in expected.values())


def test_pids_of_lists_and_utilization_are_looked_up() -> None:
    other = raw_use(listed=None, utilization={9: ProcessBusyTime(1, 1)})
    assert pids([raw_use(), other, raw_use(listed=None, utilization=None)]) == {7, 9}


PROCESSES = st.one_of(st.none(), st.builds(Process, st.integers(1, 9), st.just(OLD.owner)))
RECORDS = st.builds(
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
    records=st.dictionaries(PIDS, RECORDS),
)
def test_busy_time_is_neither_lost_nor_counted_twice(
    listed: list[GpuProcess], entries: dict[int, ProcessBusyTime], records: dict[int, PidRecord]
) -> None:
    result = to_device_use(raw_use(listed=tuple(listed), utilization=entries), records, 15)
    assert result.busy_ns == min(sum(e.busy_ns for e in entries.values()), 5 * NS)
    attributed = sum(one.busy_ns or 0 for one in result.processes)
    assert attributed <= result.busy_ns if result.mps else attributed == result.busy_ns
    assert sorted(one.pid for one in result.processes if one.kind) == sorted(
        {p.pid for p in listed}
    )
    order = [(one.pid, one.started or 0) for one in result.processes]
    assert order == sorted(order)
    for one in result.processes:
        record = records.get(one.pid, UNKNOWN)
        owners = {
            process.owner for process in (record.current, record.previous) if process is not None
        }
        assert one.owner is None or one.owner in owners
