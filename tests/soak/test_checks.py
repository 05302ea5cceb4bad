"""The soak's own checks notice what they are there for."""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sinks.otlp.messages import ExportMetricsServiceRequest
from tests.fakes.clock import SetClock
from tests.soak.checker import Checker, Page
from tests.soak.faults import FAULTS
from tests.soak.receiver import Taken
from tests.soak.world import Life

GPU = frozenset({("UUID", "GPU-0")})
POD = GPU | {("pod", "a")}
PUSH = frozenset({("sink", "push")})


class Lives:
    def __init__(self, *lives: Life) -> None:
        self.lives = list(lives)
        self.receivers = {"push": None, "call": None}


def page(life: int = 1, **changed: float) -> Page:
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
    return Page(0.0, life, values, counters)


def checker(*lives: Life) -> Checker:
    world: Any = Lives(*lives)
    return Checker(world)


def test_a_page_that_is_right() -> None:
    looking = checker(Life(0))
    looking.last = page()
    for check in (looking._counters, looking._identities, looking._points):
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
def test_an_identity_that_does_not_hold(name: str, value: float) -> None:
    assert list(checker(Life(0))._identities(page(1, **{name: value})))


def test_what_is_reported_of_no_more_may_be_missing() -> None:
    looking = checker(Life(0))
    assert list(looking._identities(page())) == []
    without = page()
    del without.values["podgpu_container_held_seconds_total", POD]
    assert list(looking._identities(without)) == []


@pytest.mark.parametrize(("name", "value"), [("sink_queued", 1.0), ("sink_emitted_total", 8.0)])
def test_a_point_that_is_not_accounted_for(name: str, value: float) -> None:
    assert list(checker(Life(0))._points(page(1, **{name: value})))


def test_a_counter_that_falls() -> None:
    looking = checker(Life(0))
    looking.last = page(device_accounted_seconds_total=11.0)
    assert len(list(looking._counters(page()))) == 1


@pytest.mark.parametrize(
    ("killed", "sick", "before", "wrong"),
    [
        (False, False, 10.5, True),
        (False, False, 10.0, False),
        (True, False, 14.0, False),
        (True, False, 20.0, True),
        (True, True, 20.0, False),
    ],
)
def test_an_account_that_falls_over_a_restart(
    *, killed: bool, sick: bool, before: float, wrong: bool
) -> None:
    looking = checker(Life(0, 1, killed, sick), Life(2))
    looking.last = page(device_accounted_seconds_total=before)
    assert bool(list(looking._counters(page(life=2)))) == wrong


def message(value: int, start: int = 1) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(as_int=value, time_unix_nano=7, start_time_unix_nano=start)
    return request.SerializeToString()


def test_points_that_came_are_reported_apart() -> None:
    taken = Taken()
    for each in (message(1), message(1), message(1, start=2), message(3)):
        taken.add(each)
    assert (len(taken.points), taken.again) == (1, 1)
    start, value = taken.contradicting
    assert "1 since 1, flags 0, 1 since 2, flags 0" in start
    assert "1 since 1, flags 0, 3 since 1, flags 0" in value


def test_every_file_that_is_watched_is_edited_and_names_are_reported_apart() -> None:
    places = {place for fault in FAULTS for place in fault.places}
    assert {"config", "podlist", "counters", "web", "token"} <= places
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_clock_is_set_for_one_program_alone(tmp_path: Path) -> None:
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
    looking, name = checker(Life(0)), "podgpu_container_held_seconds_total"
    before, after = page(), page()
    for shown, seconds in ((before, 6.0), (after, value)):
        del shown.values[name, POD]
        shown.values[name, POD | {("pod_uid", uid)}] = seconds
    looking.last = before
    assert len(list(looking._counters(after))) == wrong
    if not wrong:
        assert list(looking._identities(after)) == [], "what the one before had is told of no more"
