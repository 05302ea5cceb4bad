"""How the usage of an interval is split among containers: each rule as a table."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.usage import ContainerName, ProcessSample
from pipeline.usage.interval_samples import IntervalUsage
from pipeline.usage.interval_split import split_busy, split_energy, split_memory
from tests.pipeline.usage.samples import name, process

A, B = name("a"), name("b")
UNKNOWN = process(known=False, memory=30)
HOST = process(memory=30)


@pytest.mark.parametrize(
    ("used", "reserved", "processes", "sole_holder", "containers", "unattributed"),
    [
        # used = containers + reserved + unattributed
        (100, 10, [], None, {}, 90),
        (100, 10, [process("a", memory=40)], None, {A: 40}, 50),
        (100, 10, [process("a", memory=20), process("a", memory=30)], None, {A: 50}, 40),
        (100, 10, [process("a", memory=20), process("b", memory=30)], None, {A: 20, B: 30}, 40),
        (100, 10, [HOST], A, {}, 90),
        # The owner could not be read: the single holder's, if there is one.
        (100, 10, [UNKNOWN], None, {}, 90),
        (100, 10, [UNKNOWN], A, {A: 30}, 60),
        (100, 10, [UNKNOWN, process("b", memory=5)], A, {A: 30, B: 5}, 55),
        # The memory of one of its processes is unknown.
        (100, 10, [process("a", memory=None), process("a", memory=20)], None, {A: None}, 90),
        (100, 10, [process("a", memory=None), process("b", memory=20)], None, {A: None, B: 20}, 70),
        (
            100,
            10,
            [process("a", memory=None), process("a", memory=60), process("b", memory=60)],
            None,
            {A: None, B: 45},
            45,
        ),
        # Ended: it has no memory.
        (100, 10, [process("a", memory=40, there=False)], None, {}, 90),
        # More than the device has, because it was read a moment apart.
        (100, 10, [process("a", memory=100), process("b", memory=80)], None, {A: 50, B: 40}, 0),
        (100, 10, [process("a", memory=60), process(memory=120)], None, {A: 30}, 60),
        (20, 30, [process("a", memory=60)], None, {A: 0}, 0),
        # The driver doesn't report its reserved memory.
        (100, None, [process("a", memory=40)], None, {A: 40}, 60),
    ],
)
def test_memory_is_split_among_containers(
    *,
    used: int,
    reserved: int | None,
    processes: list[ProcessSample],
    sole_holder: ContainerName | None,
    containers: dict[ContainerName, int | None],
    unattributed: int,
) -> None:
    found = split_memory(used, reserved, processes, sole_holder)
    assert found.containers == containers
    assert found.unattributed == unattributed
    assert found.reserved == min(reserved or 0, used)
    known = sum(part or 0 for part in containers.values())
    assert found.used == used == known + found.reserved + unattributed


def test_memory_of_containers_is_known_though_the_total_is_not() -> None:
    found = split_memory(None, 10, [process("a", memory=40), process("b", memory=None)], None)
    assert found[:3] == (None, None, None)
    assert found.containers == {A: 40, B: None}


@pytest.mark.parametrize(
    ("processes", "sole_holder", "listed", "expected"),
    [
        ([], None, True, True),
        ([process("a"), HOST], None, True, True),
        ([UNKNOWN], None, True, False),
        ([UNKNOWN], A, True, True),
        ([], None, False, False),
    ],
)
def test_whether_containers_without_processes_have_no_memory(
    processes: list[ProcessSample], sole_holder: ContainerName | None, listed: bool, expected: bool
) -> None:
    assert split_memory(100, 0, processes, sole_holder, listed=listed).no_others is expected


def busy_process(owner: str | None, ns: int | None, *, known: bool = True) -> ProcessSample:
    return process(owner, busy=ns, known=known)


@pytest.mark.parametrize(
    ("total", "processes", "sole_holder", "before", "containers"),
    [
        # Busy time is reported for each process.
        (90, [busy_process("a", 30), busy_process("b", 60)], None, [], {A: 30, B: 60}),
        (
            90,
            [busy_process("a", 30), busy_process("a", 20), busy_process(None, 40)],
            B,
            [],
            {A: 50},
        ),
        (90, [busy_process("a", 30), busy_process(None, 60, known=False)], None, [], {A: 30}),
        (90, [busy_process("a", 30), busy_process(None, 60, known=False)], A, [], {A: 90}),
        (90, [busy_process("a", 30), busy_process("b", None)], None, [B], {A: 30}),
        (0, [busy_process("a", 0)], B, [], {A: 0}),
        (50, [busy_process("a", 60), busy_process("b", 40)], None, [], {A: 30, B: 20}),
        # Busy time is reported for the device only.
        (90, [busy_process("a", None)], B, [], {A: 90}),
        (90, [busy_process("a", None), busy_process("a", None)], None, [A], {A: 90}),
        (90, [busy_process("a", None), busy_process("b", None)], A, [], {}),
        (90, [busy_process("a", None), busy_process(None, None)], A, [], {}),
        (90, [busy_process("a", None), busy_process(None, None, known=False)], None, [], {}),
        (90, [busy_process("a", None), busy_process(None, None, known=False)], A, [], {A: 90}),
        (90, [], A, [], {A: 90}),
        (90, [], None, [], {}),
        # Another container's processes have ended since: the busy time may be theirs.
        (90, [busy_process("b", None)], B, [A], {}),
        (90, [], B, [A], {A: 90}),
        (90, [], B, [None], {}),
    ],
)
def test_busy_time_is_split_among_containers(
    total: int,
    processes: list[ProcessSample],
    sole_holder: ContainerName | None,
    before: list[ContainerName | None],
    containers: dict[ContainerName, int],
) -> None:
    found = split_busy(total, processes, sole_holder, before)
    assert found.containers == containers
    assert found.unattributed == total - sum(containers.values())


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([busy_process("a", 90)], True),
        ([busy_process(None, 90)], True),
        ([busy_process("a", 30), busy_process(None, 60, known=False)], False),
        ([busy_process("a", 90), busy_process(None, 0, known=False)], True),
        ([busy_process("a", None)], True),
        ([busy_process("a", None), busy_process("b", None)], False),
        ([], False),
    ],
)
def test_whether_containers_without_busy_time_had_none(
    processes: list[ProcessSample], expected: bool
) -> None:
    assert split_busy(90, processes, None).no_others is expected


def interval_usage(
    held: dict[ContainerName, int],
    unheld: int,
    work: dict[ContainerName, int] | None,
    other: int = 0,
) -> IntervalUsage:
    return IntervalUsage(sum(held.values()) + unheld, held, unheld, work, other)


@pytest.mark.parametrize(
    ("total", "idle", "interval", "containers", "no_one"),
    [
        # The idle part is split by held time, the rest by busy time.
        (100, 20, interval_usage({A: 5}, 5, {B: 8}), {A: 10, B: 80}, 10),
        (100, 20, interval_usage({A: 5, B: 5}, 0, {B: 3}, 1), {A: 10, B: 70}, 20),
        (100, 0, interval_usage({A: 5}, 5, {A: 1, B: 3}), {A: 25, B: 75}, 0),
        (20, 20, interval_usage({A: 5}, 5, {A: 1}), {A: 10}, 10),
        # No busy time, or it is unknown: split by held time.
        (100, 20, interval_usage({A: 5}, 5, {A: 0}), {A: 50}, 50),
        (100, 20, interval_usage({A: 5}, 5, None), {A: 50}, 50),
        (100, 20, interval_usage({}, 5, {}), {}, 100),
        # Equal remainders: in the order of containers, unattributed last.
        (3, 3, interval_usage({B: 1, A: 1}, 0, {}), {A: 2, B: 1}, 0),
        (1, 1, interval_usage({B: 1}, 1, {}), {B: 1}, 0),
        (0, 0, interval_usage({A: 5}, 5, {A: 1}), {}, 0),
    ],
)
def test_energy_is_split_among_containers(
    total: int,
    idle: int,
    interval: IntervalUsage,
    containers: dict[ContainerName, int],
    no_one: int,
) -> None:
    assert split_energy(total, idle, interval) == (containers, no_one)


PROCESSES = st.lists(
    st.builds(
        process,
        st.sampled_from(["a", "b", "c", None]),
        memory=st.none() | st.integers(-5, 1000),
        busy=st.none() | st.integers(-5, 1000),
        known=st.booleans(),
        there=st.booleans(),
    ).map(lambda p: p if p.owner_known else p._replace(container=None)),
    max_size=4,
)
SOLE_HOLDER = st.sampled_from([A, B, None])


@given(st.integers(0, 1000), st.none() | st.integers(0, 300), PROCESSES, SOLE_HOLDER)
def test_the_order_of_processes_does_not_matter(
    total: int,
    reserved: int | None,
    processes: list[ProcessSample],
    sole_holder: ContainerName | None,
) -> None:
    for order in permutations(processes):
        assert split_memory(total, reserved, order, sole_holder) == split_memory(
            total, reserved, processes, sole_holder
        )
        assert split_busy(total, order, sole_holder) == split_busy(total, processes, sole_holder)


@given(st.integers(0, 1000), st.integers(0, 300), PROCESSES, SOLE_HOLDER, st.sets(SOLE_HOLDER))
def test_the_parts_of_each_split_sum_to_the_total(
    total: int,
    reserved: int,
    processes: list[ProcessSample],
    sole_holder: ContainerName | None,
    before: set[ContainerName],
) -> None:
    of_memory = split_memory(total, reserved, processes, sole_holder)
    parts = [part or 0 for part in of_memory.containers.values()]
    assert of_memory.reserved is not None
    assert of_memory.unattributed is not None
    assert total == sum(parts) + of_memory.reserved + of_memory.unattributed
    of_time = split_busy(total, processes, sole_holder, before)
    assert total == sum(of_time.containers.values()) + of_time.unattributed
    assert min([*parts, of_memory.unattributed, of_time.unattributed]) >= 0
