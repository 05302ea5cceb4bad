"""The recorded splits of shared GPUs, and what docs/usage.md says about them."""

from pathlib import Path

import pytest

from tests.gpu.split_error import WINDOW_MS, Recording, recordings, row, table, window_lengths


@pytest.fixture(scope="module")
def recorded() -> list[Recording]:
    return recordings()


def test_the_page_has_the_errors_of_the_recordings() -> None:
    page = Path("docs/usage.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in page, "run python -m tests.gpu.split_error"


def test_the_driver_attributes_each_window_to_one_process(recorded: list[Recording]) -> None:
    """The split is a sample of windows: this is what its error follows from."""
    for one in recorded:
        lengths = window_lengths(one)
        usual = [each for each in lengths if abs(each - WINDOW_MS) <= 5]
        assert len(usual) >= 0.99 * len(lengths), one.scene


def test_the_sum_over_processes_is_right_unless_the_gpu_is_saturated(
    recorded: list[Recording],
) -> None:
    for one in recorded:
        found = row(one)
        lost = sum(found.reported) - sum(found.true)
        saturated = sum(duty for duty, _ in one.loads) > 1.5
        # A saturated GPU is also busy while it switches between processes.
        assert (5 < lost < 12) if saturated else (abs(lost) < 2), (one.scene, lost)


def test_work_is_counted_between_two_reports_of_a_process() -> None:
    one = Recording("", ((0.5, 1),), (), (((0, 0.0), (100, 60.0), (1000, 90.0)),))
    assert one.done(0, 50) == pytest.approx(30)
    assert one.done(0, 500) == pytest.approx(60), "a pause"
    assert one.done(0, 985) == pytest.approx(75), "it worked for the last 30 ms of 900"
    assert (one.done(0, -5), one.done(0, 2000)) == (0, 90)
