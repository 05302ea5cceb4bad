"""Other ways to split busy time: what they do, and what docs/usage.md says about them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.gpu.split_error import Recording
from tests.gpu.split_estimators import (
    DRIVER,
    WAYS,
    Scene,
    Window,
    by_name,
    choice,
    chosen_on,
    driver,
    errors,
    judged_on,
    last_minute,
    means,
    neighbours,
    scaled,
    tables,
)

PAGE = Path("docs/usage.md")
BOTH = frozenset({0, 1})


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, Scene]:
    return by_name()


def scene(*processes: int, listed: tuple[tuple[float, frozenset[int]], ...] = ()) -> Scene:
    """Return windows that are half busy, with a whole and a quarter of that by profiling."""
    windows = [
        Window((place + 1) * 200, process, 100, 100, 25) for place, process in enumerate(processes)
    ]
    work = Recording("", (), (), (((0, 0.0),), ((0, 0.0),)))
    return Scene("", work, tuple(windows), listed or ((float("inf"), BOTH),))


def test_the_page_has_both_tables(recorded: Mapping[str, Scene]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for lines in tables(recorded):
        assert "\n".join(lines) in page, "run python -m tests.gpu.split_estimators"


def test_a_window_belongs_to_the_process_that_the_driver_names() -> None:
    assert driver(scene(0, 1)) == [[100, 0], [0, 100]]


def test_neighbours_share_a_window() -> None:
    third = pytest.approx([100 * 2 / 3, 100 / 3])
    assert neighbours(1)(scene(0, 0, 0, 1, 1)) == [
        [100, 0],
        [100, 0],
        third,
        pytest.approx([100 / 3, 100 * 2 / 3]),
        [0, 100],
    ]


def test_the_last_minute_has_300_windows() -> None:
    windows = scene(*[0] * 300, *[1] * 300)
    found = last_minute(0)(windows)
    assert (found[299], found[449], found[599]) == ([100, 0], [50, 50], [0, 100])
    half = last_minute(0.5)(windows)
    assert (half[299], half[449], half[599]) == ([100, 0], [25, 75], [0, 100])


def test_a_process_that_has_ended_has_no_part() -> None:
    ended = ((400, BOTH), (10_000, frozenset({1})))
    assert last_minute(0)(scene(0, 0, 1, listed=ended))[2] == [0, 100]
    assert neighbours(1)(scene(0, 0, 1, listed=ended))[2] == [0, 100]


def test_an_interval_has_the_busy_time_of_the_profiling_field() -> None:
    assert scaled(driver, lambda one: one.sm_ms)(scene(0, 1)) == [[25, 0], [0, 25]]


@pytest.mark.parametrize("name", [name for name in WAYS if "active" not in name])
def test_without_profiling_the_parts_of_a_window_sum_to_it(
    name: str, recorded: Mapping[str, Scene]
) -> None:
    for one in [*chosen_on(recorded), *judged_on(recorded)]:
        for window, parts in zip(one.windows, WAYS[name](one), strict=True):
            assert sum(parts) == pytest.approx(window.busy_ms)


def test_a_composed_scene_has_the_work_of_its_parts(recorded: Mapping[str, Scene]) -> None:
    """After 110 s, two of four processes pause and the others work as in another recording."""
    paused = next(one for one in chosen_on(recorded) if one.title == "two of four pause").work
    for process in range(4):
        halves = [paused.done(process, end) for end in (110_000, 220_000)]
        first = _work_of_110_s(recorded["a"], process)
        second = _work_of_110_s(recorded["b"], process) if process < 2 else 0
        assert halves == pytest.approx([first, first + second], abs=2), process


def _work_of_110_s(one: Scene, process: int) -> float:
    begin = next(one.work.spans(5_000))[0]
    return one.work.done(process, begin + 110_000) - one.work.done(process, begin)


def test_a_way_that_remembers_is_wrong_after_a_change(recorded: Mapping[str, Scene]) -> None:
    turns = chosen_on(recorded)[-1]
    assert errors(turns, WAYS["last minute"])[1] > 5 * errors(turns, driver)[1]


def test_no_way_that_keeps_the_meaning_of_busy_time_is_clearly_better(
    recorded: Mapping[str, Scene],
) -> None:
    """Time of active SMs is not busy time: a kernel on one SM keeps the GPU busy."""
    scenes = chosen_on(recorded)
    at_least = 0.96 * means(scenes, driver)[1]
    for name, way in WAYS.items():
        assert "SM active" in name or means(scenes, way)[1] > at_least, name


def test_the_gain_of_the_chosen_way_is_from_the_profiling_field(
    recorded: Mapping[str, Scene],
) -> None:
    scenes = judged_on(recorded)
    of_driver, of_windows, of_field, of_both = (
        means(scenes, WAYS[name])
        for name in (DRIVER, "3 windows", "SM active", "3 windows, SM active")
    )
    assert choice(recorded) == "3 windows, SM active"
    assert of_both == pytest.approx(of_field, abs=0.05)
    assert of_windows == pytest.approx(of_driver, abs=0.15)
    for found in (of_field, of_windows):
        assert "{:.1f}, {:.1f}".format(*found) in PAGE.read_text(encoding="utf-8")
