"""Which readings stand, and for how long."""

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


def test_a_patch_leaves_the_other_readings_alone() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 100), reading(GPU, "energy_millijoules", 7))
    node.reads(reading(GPU, "power_watts", 200))
    assert shown(node.snapshot()) == [
        ("power_watts", GPU.uuid, 200),
        ("energy_millijoules", GPU.uuid, 7),
    ]


def test_only_what_was_read_since_the_last_snapshot_is_fresh() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 100), reading(GPU, "energy_millijoules", 7))
    assert node.snapshot().fresh == (0, 1)
    node.reads(reading(GPU, "energy_millijoules", 8))
    assert node.snapshot().fresh == (1,)
    node.podlist(claim("a", GPU.uuid))
    assert node.snapshot().fresh == ()


def test_a_reading_that_is_no_longer_good_has_no_series() -> None:
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


def test_a_newer_reading_may_be_good_for_less_long() -> None:
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


def test_a_field_that_the_catalogue_lacks_is_passed_over() -> None:
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
    def test_the_earlier_source_is_shown_whichever_speaks_last(self) -> None:
        node = Node()
        node.say(SourceAdded(0), "first", "nvml")
        node.say(SourceAdded(1), "second", "dcgm")
        node.say(DevicesDiscovered((GPU,)), "first", "nvml")
        node.say(SamplesTaken((reading(GPU, "power_watts", 1),)), "first", "nvml")
        node.say(SamplesTaken((reading(GPU, "power_watts", 2),)), "second", "dcgm")
        assert shown(node.snapshot()) == [("power_watts", GPU.uuid, 1)]

    def test_the_later_one_steps_in_where_the_earlier_has_nothing(self) -> None:
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
    def test_a_process_has_a_series_for_as_long_as_it_is_listed(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[listed(GPU.uuid, (11, 100), (12, 200))])
        assert [value for _, _, value in shown(node.snapshot())] == [100, 200]
        node.reads(processes=[listed(GPU.uuid, (12, 250))])
        snapshot = node.snapshot()
        assert [s.attrs for s in snapshot.layout.series] == [(("kind", "compute"), ("pid", "12"))]
        assert [p.pid for p in snapshot.processes[GPU.uuid]] == [12]

    def test_memory_that_the_driver_does_not_report_is_no_sample(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[listed(GPU.uuid, (11, None))])
        snapshot = node.snapshot()
        assert shown(snapshot) == []
        assert [p.pid for p in snapshot.processes[GPU.uuid]] == [11]

    def test_attributes_are_sorted_by_name(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[listed(GPU.uuid, (11, 1))])
        [series] = node.snapshot().layout.series
        assert series.attrs == tuple(sorted(series.attrs))

    def test_the_largest_of_many_have_series_and_all_are_listed(self) -> None:
        node = Node()
        node.has(GPU, OTHER)
        # Of those that use the same, the smaller pids.
        many = listed(GPU.uuid, *((pid, pid // 1000) for pid in range(1, 10_001)), (10_001, None))
        node.reads(
            reading(GPU, "processes", 10_001, attrs=(("kind", "compute"),)),
            processes=[many, listed(OTHER.uuid, *((pid, 1) for pid in range(1, 301)))],
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

    def test_a_process_that_grows_takes_the_place_of_the_smallest(self) -> None:
        node = Node()
        node.has(GPU)
        many = [(pid, 1000 + pid) for pid in range(1, 258)]
        node.reads(processes=[listed(GPU.uuid, *many)])
        assert 1001 not in [value for _, _, value in shown(node.snapshot())]
        node.reads(processes=[listed(GPU.uuid, (1, 5000), *many[1:])])
        values = [value for _, _, value in shown(node.snapshot())]
        assert (len(values), 5000 in values, 1002 in values) == (256, True, False)

    def test_the_same_list_once_more_keeps_the_layout_and_its_readings_good(self) -> None:
        node = Node()
        node.has(GPU)
        found = listed(GPU.uuid, (11, 1), (12, 2))
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

    def test_the_same_list_after_its_time_is_shown_again(self) -> None:
        node = Node()
        node.has(GPU)
        found = listed(GPU.uuid, (11, 1))
        node.reads(processes=[found])
        node.seconds = 20
        node.say(ClockTicked(), "", "clock")
        assert shown(node.snapshot()) == []
        node.reads(processes=[replace(found, at=at(20))])
        assert [value for _, _, value in shown(node.snapshot())] == [1]

    def test_a_list_that_is_no_longer_good_is_dropped(self) -> None:
        node = Node()
        node.has(GPU)
        node.reads(processes=[listed(GPU.uuid, (11, 1))])
        node.seconds = 20
        node.say(ClockTicked(), "", "clock")
        assert node.snapshot().processes == {}
        assert shown(node.snapshot()) == []


def listed(device: str, *processes: tuple[int, int | None]) -> ProcessList:
    found = tuple(GpuProcess(pid, "compute", memory) for pid, memory in processes)
    return ProcessList(device, found, at(0), 15 * NS)


def test_values_alone_leave_the_layout_alone() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 1))
    before = node.snapshot().layout
    node.reads(reading(GPU, "power_watts", 2, when=at(1)))
    assert node.snapshot().layout is before
    assert uuid_of(0) == GPU.uuid


def starts(snapshot: Snapshot) -> dict[str, float | None]:
    """Since when each series counts, in seconds after the start."""
    return {
        series.field: None if begun is None else (begun.mono_ns - at(0).mono_ns) / NS
        for series, begun in zip(snapshot.layout.series, snapshot.starts, strict=True)
    }


def test_c1_a_counter_that_was_set_back_counts_from_then_on() -> None:
    node = Node()
    node.has(GPU)
    given_out = []
    # Growing, standing still, set back, growing again beyond where it was.
    for second, value in enumerate((10, 20, 20, 5, 30)):
        node.seconds = second
        node.reads(
            reading(GPU, "energy_millijoules", value, when=at(second)),
            reading(GPU, "power_watts", value, when=at(second)),
        )
        given_out.append(starts(node.snapshot()))
    assert [start["energy_millijoules"] for start in given_out] == [0, 0, 0, 3, 3]
    assert {start["power_watts"] for start in given_out} == {None}, "a gauge has no start"


def test_starts_are_the_same_object_while_nothing_of_them_changes() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "energy_millijoules", 10))
    before = node.snapshot()
    node.reads(reading(GPU, "energy_millijoules", 11))
    node.podlist(claim("a", GPU.uuid))
    after = node.snapshot()
    assert after.layout is not before.layout
    assert after.starts is before.starts


def test_a_counter_whose_source_knows_when_it_stood_at_zero_starts_there() -> None:
    node = Node()
    node.has(GPU)
    counted = reading(GPU, "xid_errors", 1, attrs=(("xid", "79"),), when=at(5))
    node.reads(counted._replace(window_start=at(-60)))
    assert starts(node.snapshot()) == {"xid_errors": -60}


def test_a_counter_that_came_back_counts_from_its_first_reading_on() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "energy_millijoules", 10, good_for=3))
    node.seconds = 9
    node.say(ClockTicked(), "", "clock")
    assert starts(node.snapshot()) == {}
    node.reads(reading(GPU, "energy_millijoules", 11, when=at(9)))
    assert starts(node.snapshot()) == {"energy_millijoules": 9}


def test_of_two_sources_the_shown_one_reports_the_start() -> None:
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
