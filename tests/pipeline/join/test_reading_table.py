"""Which readings a snapshot shows, and for how long."""

from dataclasses import replace

from pipeline.model import (
    NS,
    ClockTicked,
    DevicesDiscovered,
    GpuProcess,
    ProcessList,
    SamplesTaken,
    Snapshot,
    SourceAdded,
    SourceRemoved,
)
from tests.support.nodes import Node, at, claim, gpu, mig, reading, uuid_of

GPU = gpu(0)
OTHER = gpu(1)


def shown(snapshot: Snapshot) -> list[tuple[str, str, float]]:
    return [
        (series.field, series.attribution.device.uuid, found.value)
        for series, found in zip(snapshot.layout.series, snapshot.readings, strict=True)
    ]


def test_new_readings_leave_other_readings_unchanged() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 100), reading(GPU, "energy_millijoules", 7))
    node.reads(reading(GPU, "power_watts", 200))
    assert shown(node.snapshot()) == [
        ("power_watts", GPU.uuid, 200),
        ("energy_millijoules", GPU.uuid, 7),
    ]


def test_only_readings_since_the_last_snapshot_are_fresh() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 100), reading(GPU, "energy_millijoules", 7))
    assert node.snapshot().fresh == (0, 1)
    node.reads(reading(GPU, "energy_millijoules", 8))
    assert node.snapshot().fresh == (1,)
    node.podlist(claim("a", GPU.uuid))
    assert node.snapshot().fresh == ()


def test_an_expired_reading_has_no_series() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 1, good_for=3), reading(GPU, "xid_last", 0, good_for=90))
    node.snapshot()
    node.seconds = 3
    assert node.say(ClockTicked(), "", "clock") is False
    node.seconds = 3.5
    assert node.say(ClockTicked(), "", "clock") is True
    assert shown(node.snapshot()) == [("xid_last", GPU.uuid, 0)]
    node.seconds = 91
    node.say(ClockTicked(), "", "clock")
    assert shown(node.snapshot()) == []


def test_a_newer_reading_may_expire_earlier() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 1, good_for=90))
    node.seconds = 10
    node.reads(reading(GPU, "power_watts", 2, when=at(10), good_for=3))
    node.seconds = 14
    node.say(ClockTicked(), "", "clock")
    assert shown(node.snapshot()) == []


def test_a_device_without_readings_is_still_known() -> None:
    node = Node()
    node.has(GPU)
    assert list(node.snapshot().layout.attributions) == [GPU.uuid]


def test_readings_wait_for_their_device() -> None:
    node = Node()
    node.reads(reading(GPU, "power_watts", 1))
    assert shown(node.snapshot()) == []
    node.has(GPU)
    assert shown(node.snapshot()) == [("power_watts", GPU.uuid, 1)]


def test_a_vanished_gpu_stays_known_and_a_vanished_mig_instance_does_not() -> None:
    node = Node()
    instance = mig(GPU, 1)
    node.has(GPU, OTHER, instance)
    node.reads(reading(instance, "memory_used_bytes", 1), reading(OTHER, "gpu_up", 0))
    node.has(GPU)
    snapshot = node.snapshot()
    present = {uuid: known.present for uuid, known in snapshot.layout.attributions.items()}
    assert present == {GPU.uuid: True, OTHER.uuid: False}
    assert shown(snapshot) == [("gpu_up", OTHER.uuid, 0)]


def test_a_field_that_is_not_in_the_catalogue_is_ignored() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "no_such_field", 1), reading(GPU, "power_watts", 2))
    assert shown(node.snapshot()) == [("power_watts", GPU.uuid, 2)]


def test_series_are_grouped_by_field_then_device_and_numbers_sort_as_numbers() -> None:
    node = Node()
    node.has(OTHER, GPU)
    node.reads(
        reading(OTHER, "xid_errors", 1, attrs=(("xid", "119"),)),
        reading(OTHER, "xid_errors", 1, attrs=(("xid", "13"),)),
        reading(OTHER, "power_watts", 1),
        reading(GPU, "power_watts", 1),
    )
    order = [(s.field, s.attribution.device.index, s.attrs) for s in node.snapshot().layout.series]
    assert order == [
        ("power_watts", 0, ()),
        ("power_watts", 1, ()),
        ("xid_errors", 1, (("xid", "13"),)),
        ("xid_errors", 1, (("xid", "119"),)),
    ]


class TestTwoSourcesOfOneField:
    def test_the_earlier_source_is_shown_whichever_reports_last(self) -> None:
        node = Node()
        node.say(SourceAdded(0), "first", "nvml")
        node.say(SourceAdded(1), "second", "dcgm")
        node.say(DevicesDiscovered((GPU,)), "first", "nvml")
        node.say(SamplesTaken((reading(GPU, "power_watts", 1),)), "first", "nvml")
        node.say(SamplesTaken((reading(GPU, "power_watts", 2),)), "second", "dcgm")
        assert shown(node.snapshot()) == [("power_watts", GPU.uuid, 1)]

    def test_the_later_source_is_shown_if_the_earlier_has_no_reading(self) -> None:
        node = Node()
        node.say(SourceAdded(0), "first", "nvml")
        node.say(SourceAdded(1), "second", "dcgm")
        node.say(DevicesDiscovered((GPU,)), "first", "nvml")
        node.say(SamplesTaken((reading(GPU, "power_watts", 1, good_for=3),)), "first", "nvml")
        node.say(SamplesTaken((reading(GPU, "power_watts", 2),)), "second", "dcgm")
        node.seconds = 4
        node.say(ClockTicked(), "", "clock")
        assert shown(node.snapshot()) == [("power_watts", GPU.uuid, 2)]

    def test_removing_a_source_withdraws_its_readings_and_devices(self) -> None:
        node = Node()
        node.say(SourceAdded(0), "first", "nvml")
        node.say(DevicesDiscovered((GPU,)), "first", "nvml")
        node.say(SamplesTaken((reading(GPU, "power_watts", 1),)), "first", "nvml")
        node.say(SourceRemoved(), "first", "nvml")
        snapshot = node.snapshot()
        assert snapshot.layout.series == ()
        assert snapshot.layout.attributions == {}


class TestProcesses:
    def test_a_process_has_a_series_while_it_is_listed(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[process_list(GPU.uuid, (11, 100), (12, 200))])
        assert [value for _, _, value in shown(node.snapshot())] == [100, 200]
        node.reads(processes=[process_list(GPU.uuid, (12, 250))])
        snapshot = node.snapshot()
        assert [s.attrs for s in snapshot.layout.series] == [(("kind", "compute"), ("pid", "12"))]
        assert [p.pid for p in snapshot.processes[GPU.uuid]] == [12]

    def test_a_process_without_reported_memory_has_no_series(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[process_list(GPU.uuid, (11, None))])
        snapshot = node.snapshot()
        assert shown(snapshot) == []
        assert [p.pid for p in snapshot.processes[GPU.uuid]] == [11]

    def test_attributes_are_sorted_by_name(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[process_list(GPU.uuid, (11, 1))])
        [series] = node.snapshot().layout.series
        assert series.attrs == tuple(sorted(series.attrs))

    def test_of_many_processes_the_largest_have_series_and_all_are_listed(self) -> None:
        node = Node()
        node.has(GPU, OTHER)
        # Of processes with the same memory, those with the smaller pids.
        many = process_list(
            GPU.uuid, *((pid, pid // 1000) for pid in range(1, 10_001)), (10_001, None)
        )
        node.reads(
            reading(GPU, "processes", 10_001, attrs=(("kind", "compute"),)),
            processes=[many, process_list(OTHER.uuid, *((pid, 1) for pid in range(1, 301)))],
        )
        snapshot = node.snapshot()
        pids: dict[str, list[int]] = {}
        for series in snapshot.layout.series:
            if series.field == "process_memory_used_bytes":
                uuid = series.attribution.device.uuid
                pids.setdefault(uuid, []).append(int(dict(series.attrs)["pid"]))
        assert {uuid: sorted(found) for uuid, found in pids.items()} == {
            GPU.uuid: [*range(9000, 9255), 10_000],
            OTHER.uuid: list(range(1, 257)),
        }
        assert snapshot.processes[GPU.uuid] is many.processes
        assert ("processes", GPU.uuid, 10_001) in shown(snapshot)

    def test_a_growing_process_replaces_the_smallest(self) -> None:
        node = Node()
        node.has(GPU)
        many = [(pid, 1000 + pid) for pid in range(1, 258)]
        node.reads(processes=[process_list(GPU.uuid, *many)])
        assert 1001 not in [value for _, _, value in shown(node.snapshot())]
        node.reads(processes=[process_list(GPU.uuid, (1, 5000), *many[1:])])
        values = [value for _, _, value in shown(node.snapshot())]
        assert (len(values), 5000 in values, 1002 in values) == (256, True, False)

    def test_the_same_list_again_keeps_the_layout_and_confirms_the_readings(self) -> None:
        node = Node()
        node.has(GPU)
        found = process_list(GPU.uuid, (11, 1), (12, 2))
        node.reads(processes=[found])
        before = node.snapshot()
        for second in (10, 20, 30):
            node.seconds = second
            node.reads(processes=[replace(found, at=at(second))])
            snapshot = node.snapshot()
            assert snapshot.layout is before.layout
            assert [(r.value, r.at) for r in snapshot.readings] == [
                (1, at(second)),
                (2, at(second)),
            ]
            assert snapshot.fresh == (0, 1)

    def test_the_same_list_is_shown_again_after_it_expired(self) -> None:
        node = Node()
        node.has(GPU)
        found = process_list(GPU.uuid, (11, 1))
        node.reads(processes=[found])
        node.seconds = 20
        node.say(ClockTicked(), "", "clock")
        assert shown(node.snapshot()) == []
        node.reads(processes=[replace(found, at=at(20))])
        assert [value for _, _, value in shown(node.snapshot())] == [1]

    def test_an_expired_list_is_dropped(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[process_list(GPU.uuid, (11, 1))])
        node.seconds = 20
        node.say(ClockTicked(), "", "clock")
        assert node.snapshot().processes == {}
        assert shown(node.snapshot()) == []


def process_list(device: str, *processes: tuple[int, int | None]) -> ProcessList:
    found = tuple(GpuProcess(pid, "compute", memory) for pid, memory in processes)
    return ProcessList(device, found, at(0), 15 * NS)


def test_new_values_do_not_change_the_layout() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 1))
    before = node.snapshot().layout
    node.reads(reading(GPU, "power_watts", 2, when=at(1)))
    assert node.snapshot().layout is before
    assert uuid_of(0) == GPU.uuid


def starts(snapshot: Snapshot) -> dict[str, float | None]:
    """Return since when each series counts, in seconds after the start of the node."""
    return {
        series.field: None if start is None else (start.mono_ns - at(0).mono_ns) / NS
        for series, start in zip(snapshot.layout.series, snapshot.starts, strict=True)
    }


def test_c1_a_reset_counter_has_a_new_start() -> None:
    node = Node()
    node.has(GPU)
    found = []
    # Growing, unchanged, reset, growing again beyond the value before the reset.
    for second, value in enumerate((10, 20, 20, 5, 30)):
        node.seconds = second
        node.reads(
            reading(GPU, "energy_millijoules", value, when=at(second)),
            reading(GPU, "power_watts", value, when=at(second)),
        )
        found.append(starts(node.snapshot()))
    assert [start["energy_millijoules"] for start in found] == [0, 0, 0, 3, 3]
    assert {start["power_watts"] for start in found} == {None}, "a gauge has no start"


def test_starts_are_the_same_object_while_unchanged() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "energy_millijoules", 10))
    before = node.snapshot()
    node.reads(reading(GPU, "energy_millijoules", 11))
    node.podlist(claim("a", GPU.uuid))
    after = node.snapshot()
    assert after.layout is not before.layout
    assert after.starts is before.starts


def test_a_counter_starts_when_its_source_reports_that_it_was_zero() -> None:
    node = Node()
    node.has(GPU)
    counted = reading(GPU, "xid_errors", 1, attrs=(("xid", "79"),), when=at(5))
    node.reads(counted._replace(window_start=at(-60)))
    assert starts(node.snapshot()) == {"xid_errors": -60}


def test_a_counter_that_returns_starts_at_its_first_reading() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "energy_millijoules", 10, good_for=3))
    node.seconds = 9
    node.say(ClockTicked(), "", "clock")
    assert starts(node.snapshot()) == {}
    node.reads(reading(GPU, "energy_millijoules", 11, when=at(9)))
    assert starts(node.snapshot()) == {"energy_millijoules": 9}


def test_of_two_sources_the_shown_one_determines_the_start() -> None:
    node = Node()
    node.say(SourceAdded(0), "first", "nvml")
    node.say(SourceAdded(1), "second", "dcgm")
    node.say(DevicesDiscovered((GPU,)), "first")
    node.say(DevicesDiscovered((GPU,)), "second", "dcgm")
    node.say(SamplesTaken((reading(GPU, "energy_millijoules", 10, when=at(1)),)), "second", "dcgm")
    assert starts(node.snapshot()) == {"energy_millijoules": 1}
    node.say(SamplesTaken((reading(GPU, "energy_millijoules", 9, when=at(2)),)), "first")
    assert starts(node.snapshot()) == {"energy_millijoules": 2}
    node.say(SourceRemoved(), "first")
    assert starts(node.snapshot()) == {"energy_millijoules": 1}
