"""The checks of the soak test detect the errors that they look for."""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.fakes.clock import SetClock
from tests.soak.checker import Checker, Page
from tests.soak.faults import FAULTS
from tests.soak.receiver import Taken
from tests.soak.world import PodgpuRun

GPU = frozenset({("UUID", "GPU-0")})
POD = GPU | {("pod", "a")}
PUSH = frozenset({("sink", "push")})


class FakeWorld:
    def __init__(self, *runs: PodgpuRun) -> None:
        self.runs = list(runs)
        self.receivers = {"push": None, "call": None}


def page(run: int = 1, **changed: float) -> Page:
    values = {
        ("podgpu_device_accounted_seconds_total", GPU): 10.0,
        ("podgpu_container_held_seconds_total", POD): 6.0,
        ("podgpu_device_unattributed_held_seconds_total", GPU): 4.0,
        ("podgpu_device_free_seconds_total", GPU): 3.0,
        ("podgpu_device_unknown_held_seconds_total", GPU): 1.0,
        ("podgpu_sink_produced_total", PUSH): 9.0,
        ("podgpu_sink_recovered_total", PUSH): 1.0,
        ("podgpu_sink_emitted_total", PUSH): 7.0,
        ("podgpu_sink_queued", PUSH): 2.0,
        ("podgpu_sink_dropped_total", PUSH | {("reason", "queue_over_size")}): 1.0,
        ("podgpu_sink_dropped_total", PUSH | {("reason", "queue_full")}): 5.0,
    }
    for name, value in changed.items():
        (key,) = (each for each in values if each[0] == f"podgpu_{name}")
        values[key] = value
    counters = frozenset(name for name, _ in values if name.endswith("_total"))
    return Page(0.0, run, values, counters)


def checker(*runs: PodgpuRun) -> Checker:
    world: Any = FakeWorld(*runs)
    return Checker(world)


def test_a_correct_page_has_no_error() -> None:
    subject = checker(PodgpuRun(0))
    subject.last = page()
    for check in (subject._counters, subject._identities, subject._points):
        assert list(check(page())) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("container_held_seconds_total", 5.0),
        ("container_held_seconds_total", 7.0),
        ("device_accounted_seconds_total", 12.0),
        ("device_free_seconds_total", 4.0),
    ],
)
def test_a_page_whose_parts_do_not_sum_to_the_total_is_an_error(name: str, value: float) -> None:
    assert list(checker(PodgpuRun(0))._identities(page(1, **{name: value})))


def test_a_container_that_is_not_exposed_any_more_may_be_missing() -> None:
    subject = checker(PodgpuRun(0))
    assert list(subject._identities(page())) == []
    without = page()
    del without.values["podgpu_container_held_seconds_total", POD]
    assert list(subject._identities(without)) == []


@pytest.mark.parametrize(("name", "value"), [("sink_queued", 1.0), ("sink_emitted_total", 8.0)])
def test_a_point_that_is_not_accounted_for_is_an_error(name: str, value: float) -> None:
    assert list(checker(PodgpuRun(0))._points(page(1, **{name: value})))


def test_a_counter_that_decreases_is_an_error() -> None:
    subject = checker(PodgpuRun(0))
    subject.last = page(device_accounted_seconds_total=11.0)
    assert len(list(subject._counters(page()))) == 1


@pytest.mark.parametrize(
    ("killed", "disk_full", "before", "wrong"),
    [
        (False, False, 10.5, True),
        (False, False, 10.0, False),
        (True, False, 14.0, False),
        (True, False, 20.0, True),
        (True, True, 20.0, False),
    ],
)
def test_an_account_may_decrease_over_a_restart_only_with_a_reason(
    *, killed: bool, disk_full: bool, before: float, wrong: bool
) -> None:
    subject = checker(PodgpuRun(0, 1, killed, disk_full), PodgpuRun(2))
    subject.last = page(device_accounted_seconds_total=before)
    assert bool(list(subject._counters(page(run=2)))) == wrong


def message(value: int, start: int = 1) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(as_int=value, time_unix_nano=7, start_time_unix_nano=start)
    return request.SerializeToString()


def test_repeated_and_contradicting_points_are_distinguished() -> None:
    taken = Taken()
    for each in (message(1), message(1), message(1, start=2), message(3)):
        taken.add(each)
    assert (len(taken.points), taken.again) == (1, 1)
    start, value = taken.contradicting
    assert "1 since 1, flags 0, 1 since 2, flags 0" in start
    assert "1 since 1, flags 0, 3 since 1, flags 0" in value


def test_faults_edit_every_watched_file_and_have_unique_names() -> None:
    places = {place for fault in FAULTS for place in fault.places}
    assert {"config", "podlist", "counters", "web", "token"} <= places
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_clock_is_set_for_only_one_program(tmp_path: Path) -> None:
    clock = SetClock(tmp_path / "clock")
    clock.step(random.choice([-7200, 7200]))
    program = "import time; print(time.time(), time.monotonic())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=clock.env(), check=True, capture_output=True, text=True
    )
    wall, mono = map(float, done.stdout.split())
    assert abs(wall - time.time() - clock.offset_ns / 1e9) < 20
    assert abs(mono - time.monotonic()) < 20


@pytest.mark.parametrize(("uid", "value", "wrong"), [("", 1, 0), ("", 5.9, 0), ("u", 1, 1)])
def test_counters_of_a_pod_without_uid_may_restart(uid: str, value: float, wrong: int) -> None:
    subject, name = checker(PodgpuRun(0)), "podgpu_container_held_seconds_total"
    before, after = page(), page()
    for shown, seconds in ((before, 6.0), (after, value)):
        del shown.values[name, POD]
        shown.values[name, POD | {("pod_uid", uid)}] = seconds
    subject.last = before
    assert len(list(subject._counters(after))) == wrong
    if not wrong:
        assert list(subject._identities(after)) == [], (
            "the amounts of the previous pod are not exposed any more"
        )
