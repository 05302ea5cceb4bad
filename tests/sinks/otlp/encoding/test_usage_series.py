"""Series of usage over time: starts, ends, and the sum of increments."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import NS, Instant, PodInfo
from sinks.otlp.options import Temporality
from tests.sinks.otlp.encoding.accounts import (
    BUSY,
    ENERGY,
    ERRORS,
    HELD,
    MEMORY,
    MS,
    Scene,
    container_points,
)
from tests.sinks.otlp.encoding.support import Identity, Point, held, named
from tests.support.examples import examples
from tests.support.nodes import at, claim, gpu, reading
from tests.support.usage import account, used


def test_counters_start_when_their_accounts_start() -> None:
    scene = Scene()
    one = used("a", start=at(2), busy=NS)
    scene.node.seconds = 5
    found = scene.sample(account(gpu(0), one, start=at(-3), until=at(5)))
    for point in found:
        if point.kind == "counter":
            start = at(2) if point.name.startswith("podgpu.container") else at(-3)
            assert (point.start, point.time) == (start.wall_ns, at(5).wall_ns)
            assert point.temporality == 2
    later = scene.sample_containers(replace(one, busy_ns=2 * NS), second=6)
    assert named(later, BUSY)[0].start == at(2).wall_ns


def test_a_restarted_account_has_a_new_start() -> None:
    scene = Scene()
    scene.sample_containers(used("a", busy=5 * NS), second=5)
    [point] = named(scene.sample_containers(used("a", start=at(8), busy=NS), second=10), BUSY)
    assert (point.value, point.start) == (1.0, at(8).wall_ns)


def ends(found: Sequence[Point]) -> set[tuple[str, object]]:
    return {(p.name, p.of("k8s.pod.name")) for p in found if p.ended}


def test_series_of_a_forgotten_container_end_once() -> None:
    scene = Scene()
    scene.sample_containers(used("a", busy=NS), used("b", busy=NS, memory=1), second=5)
    found = scene.sample_containers(used("a", busy=NS), second=10)
    assert ends(found) == {(name, "b") for name in (BUSY, HELD, MEMORY)}
    for end in (point for point in found if point.ended):
        assert end.value is None
        assert end.time == at(5).wall_ns + MS
    assert min(point.time for point in found if not point.ended) > at(5).wall_ns + MS
    assert ends(scene.sample_containers(used("a", busy=NS), second=15)) == set()


def test_a_series_taken_over_by_the_same_name_does_not_end() -> None:
    scene = Scene()
    first, second = (used("p" * 1024 + ending, uid="u", busy=NS) for ending in "ab")
    scene.sample_containers(second, second=5)
    found = scene.sample_containers(first, second, second=10)
    assert ends(found) == set()
    assert [point.value for point in named(found, BUSY)] == [1.0]


def test_the_memory_series_ends_when_memory_is_unknown_and_restarts() -> None:
    scene = Scene()
    [first] = named(scene.sample_containers(used("a", memory=3), second=5), MEMORY)
    assert (first.start, first.kind) == (at(5).wall_ns, "updowncounter")
    assert ends(scene.sample_containers(used("a", memory=None), second=10)) == {(MEMORY, "a")}
    [again] = named(scene.sample_containers(used("a", memory=3), second=15), MEMORY)
    assert again.start == at(15).wall_ns


def test_all_series_end_without_usage_or_without_the_device() -> None:
    for device_removed in (False, True):
        scene = Scene()
        there = scene.sample_containers(used("a", busy=NS), second=5)
        if device_removed:
            scene.node.join = type(scene.node.join)()
            scene.node.has(gpu(1))
            found = scene.sample_containers(used("a", busy=NS), second=10)
        else:
            scene.usage = None
            found = scene.encode()
        assert {point.identity for point in found if point.ended} == {p.identity for p in there}
        assert all(point.ended for point in found)


def test_a_changed_resource_attribute_ends_the_series() -> None:
    scene = Scene()
    infos = [PodInfo("u-a", "ml", "a", labels=(("v", version),)) for version in "12"]
    scene.sample_containers(used("a", busy=NS, info=infos[0]), second=1)
    found = scene.sample_containers(used("a", busy=2 * NS, info=infos[1]), second=2)
    label = "k8s.pod.label.v"
    assert {point.of(label) for point in container_points(found) if point.ended} == {"1"}
    [current] = [point for point in named(found, BUSY) if not point.ended]
    assert (current.of(label), current.value, current.start) == ("2", 2.0, at(0).wall_ns)


def test_increments_count_from_the_last_point() -> None:
    scene = Scene(temporality="delta")
    found = [
        point
        for second, busy in ((5, 2), (10, 2), (15, 7))
        for point in named(scene.sample_containers(used("a", busy=busy * NS), second=second), BUSY)
    ]
    assert [(p.value, p.start, p.time) for p in found] == [
        (2.0, at(0).wall_ns, at(5).wall_ns),
        (0.0, at(5).wall_ns, at(10).wall_ns),
        (5.0, at(10).wall_ns, at(15).wall_ns),
    ]
    assert {point.temporality for point in found} == {1}


def test_the_first_error_of_a_known_container_is_an_increment() -> None:
    scene = Scene(temporality="delta")
    scene.sample_containers(used("a", busy=NS), second=5)
    xids_by_second = (((79, 1),), ((13, 2), (79, 1)), ((13, 2), (79, 4)))
    found = [
        [(point.of("error.type"), point.value, point.start - at(0).wall_ns) for point in errors]
        for second, xids in enumerate(xids_by_second, 6)
        if (errors := named(scene.sample_containers(used("a", xids=xids), second=second), ERRORS))
    ]
    assert found == [
        [("xid_79", 1, 5 * NS)],
        [("xid_13", 2, 6 * NS), ("xid_79", 0, 6 * NS)],
        [("xid_13", 0, 7 * NS), ("xid_79", 3, 7 * NS)],
    ]


def test_error_series_end_with_their_container() -> None:
    scene = Scene()
    scene.sample_containers(used("a", xids=((79, 1),)), second=5)
    assert (ERRORS, "a") in ends(scene.sample_containers(second=10))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (at(6), (3.0, at(6).wall_ns)),  # it started after the previous sample
        (at(5), (3.0, at(5).wall_ns)),
        (at(4), (0.0, at(10).wall_ns)),  # it existed before, and it is unknown what was sent of it
    ],
)
def test_the_first_increment_counts_from_a_start_after_the_last_sample(
    start: Instant, expected: tuple[float, int]
) -> None:
    scene = Scene(temporality="delta")
    scene.sample_containers(second=5)
    [point] = named(scene.sample_containers(used("b", start=start, busy=3 * NS), second=10), BUSY)
    assert (point.value, point.start) == expected


def test_the_first_increment_of_a_new_sink_is_0() -> None:
    scene = Scene(temporality="delta", started=False)
    found = scene.sample_containers(used("a", busy=5 * NS, memory=9), second=5)
    assert [(p.value, p.start) for p in named(found, BUSY)] == [(0.0, at(5).wall_ns)]
    assert [p.value for p in named(found, MEMORY)] == [9], "memory is not a counter"
    [point] = named(scene.sample_containers(used("a", busy=6 * NS), second=10), BUSY)
    assert (point.value, point.start) == (1.0, at(5).wall_ns)


def test_increments_continue_in_another_resource_and_a_restarted_account() -> None:
    scene = Scene(temporality="delta")
    scene.sample_containers(used("a", busy=5 * NS), second=5)
    info = PodInfo("u-a", "ml", "a", labels=(("v", "1"),))
    found = scene.sample_containers(used("a", busy=6 * NS, info=info), second=10)
    [point] = [point for point in named(found, BUSY) if not point.ended]
    assert (point.value, point.start) == (1.0, at(5).wall_ns)
    [point] = named(
        scene.sample_containers(used("a", start=at(12), busy=NS, info=info), second=15), BUSY
    )
    assert (point.value, point.start) == (1.0, at(10).wall_ns)


def test_points_of_a_slow_sample_are_not_older_than_sent_points() -> None:
    """Prometheus refuses a message in which the time of a resource goes back."""
    scene = Scene()
    scene.node.seconds = 9
    scene.node.reads(reading(gpu(0), "power_watts", 70, when=at(9)))
    scene.encode()
    scene.node.seconds = 9.5
    found = scene.sample(account(gpu(0), used("a"), until=at(5)))
    assert {point.time for point in found} == {at(9).wall_ns + MS}
    scene.node.reads(reading(gpu(0), "power_watts", 71, when=at(9.4)))
    found = scene.sample(account(gpu(0), used("a"), until=at(5.1)))
    assert {point.time for point in found} == {at(9.4).wall_ns}


def test_the_state_of_ended_containers_is_freed() -> None:
    scene = Scene(gpu(0), gpu(1))
    sizes = []
    for turn in range(20):
        held(scene.node, claim(f"pod-{turn}", gpu(0).uuid))
        scene.node.seconds = turn
        devices = [gpu(0)] if turn % 3 else [gpu(0), gpu(1)]
        scene.sample(
            *(account(d, used(f"pod-{turn}", memory=turn), until=at(turn)) for d in devices)
        )
        encoder_usage = scene.encoder.usage
        tracks = sum(len(list(one.states)) for one in encoder_usage.devices.values())
        series = sum(len(one.series) for one in encoder_usage.devices.values())
        sizes.append(
            (len(devices), tracks, series, encoder_usage._template.cache_info().currsize <= 4)
        )
    assert len(set(sizes[3:])) == 2
    assert len(scene.encoder.cache.resources) < 12


GROWTH = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(0, 1 << 40), min_size=3, max_size=3)),
    min_size=1,
    max_size=10,
)


@given(GROWTH, st.sampled_from(["cumulative", "delta"]))
@settings(deadline=None, max_examples=examples(60))
def test_increments_sum_to_the_total_and_times_never_go_back(
    growth: Sequence[tuple[bool, list[int]]], temporality: Temporality
) -> None:
    """Also if a label of the pod, and so the resource, changes."""
    scene = Scene(temporality=temporality)
    total = [0, 0, 0]
    sums: defaultdict[str, float] = defaultdict(float)
    last: dict[Identity, Point] = {}
    for second, (renamed, more) in enumerate(growth, 1):
        total = [before + added for before, added in zip(total, more, strict=True)]
        info = PodInfo("u-a", "ml", "a", labels=(("v", str(renamed)),))
        one = used("a", busy=total[0], held=total[1], energy=total[2], info=info)
        for point in container_points(scene.sample_containers(one, second=second)):
            before = last.pop(point.identity, None)
            assert before is None or point.time > before.time
            assert point.start <= point.time
            if point.ended:
                continue
            last[point.identity] = point
            assert point.value is not None
            if temporality == "delta":
                assert point.value >= 0
                sums[point.name] += point.value
            else:
                assert point.start == at(0).wall_ns
                sums[point.name] = point.value
    expected = {BUSY: total[0] / NS, HELD: total[1] / NS, ENERGY: total[2] / 1000}
    assert sums == pytest.approx(expected)
