"""Process utilisation: each entry weighed by its own time, nothing counted twice or for nobody."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pynvml
import pytest

from pipeline.model import NS, Instant
from sources.nvml import codes, process_utilization
from sources.nvml.library import Library
from sources.nvml.process_utilization import Utilization
from sources.nvml.readers import GpuReadings
from tests.fakes.nvml import FakeNvml, Load, Sample, Scenario, h100, h100s

WALL_S = 1_700_000_000
MS = 1_000_000


def at(seconds: float, set_by: float = 0) -> Instant:
    """A moment, on a wall clock that was set by so much."""
    ns = round(seconds * NS)
    return Instant(ns, WALL_S * NS + ns + round(set_by * NS))


def stamp(seconds: float) -> int:
    return round((WALL_S + seconds) * 1e6)


class Asking:
    """One GPU that is asked at moments of the test's choosing."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fake = fake
        nvml = Library()
        nvml.open()
        _, handle = nvml.handle_at(0)
        self.one = Utilization(nvml, handle)
        self.sheet = GpuReadings("", at(0))

    def says(self, *samples: Sample, errors: Mapping[str, int] | None = None) -> None:
        self.fake.set(Scenario(gpus=[h100(samples=samples, errors=errors or {})]))

    def ask(self, when: Instant) -> dict[int, int] | None:
        """Ask; return busy milliseconds by pid."""
        assert self.one.read(self.sheet, when) == codes.OK
        found = self.one.by_pid
        return None if found is None else {pid: e.busy_ns // MS for pid, e in found.items()}


@pytest.fixture
def asking(fake_nvml: FakeNvml) -> Asking:
    return Asking(fake_nvml)


def test_the_first_time_counts_from_now_on(asking: Asking) -> None:
    asking.says(Sample(7, sm=90, timestamp=stamp(9.9)))
    assert asking.ask(at(10)) is None
    assert asking.ask(at(15)) == {}, "what the driver still held is of nobody"


def test_an_entry_counts_for_the_time_up_to_its_own_stamp(asking: Asking) -> None:
    asking.ask(at(10))
    asking.says(Sample(7, sm=50, timestamp=stamp(14.8)), Sample(8, sm=25, timestamp=stamp(12)))
    assert asking.ask(at(15)) == {7: 2400, 8: 500}
    asking.says(Sample(7, sm=50, timestamp=stamp(19.8)), Sample(8, sm=25, timestamp=stamp(18.8)))
    assert asking.ask(at(20)) == {7: 2500, 8: 1000}, "from the newest stamp on, for both"


def test_it_is_exact_to_the_nanosecond(asking: Asking) -> None:
    asking.ask(at(10))
    asking.says(Sample(7, sm=37, timestamp=stamp(13.123457)))
    asking.one.read(asking.sheet, at(15))
    assert asking.one.by_pid is not None
    assert asking.one.by_pid[7].busy_ns == 37 * 3_123_457 * 10
    assert asking.one.by_pid[7].stamp_us == stamp(13.123457)


def test_no_one_had_any(asking: Asking) -> None:
    asking.ask(at(10))
    assert asking.ask(at(15)) == {}


@pytest.mark.parametrize("rest", [5, 10, 60])
def test_time_without_anybody_is_not_credited_to_who_comes_after_it(
    asking: Asking, rest: int
) -> None:
    asking.ask(at(0))
    for second in range(5, rest + 1, 5):
        asking.ask(at(second))
    asking.says(Sample(7, sm=100, timestamp=stamp(rest + 5)))
    assert asking.ask(at(rest + 5)) == {7: 6000}, "and a sample's period, which may be a second"


def test_looks_that_find_nothing_new_cost_nothing(asking: Asking) -> None:
    """Asked twenty times a second, the driver has something new each fourth time."""
    asking.ask(at(0))
    total = 0
    for tick in range(1, 101):
        last = tick // 4 * 4 / 20
        asking.says(*([Sample(7, sm=100, timestamp=stamp(last))] if last else []))
        total += sum((asking.ask(at(tick / 20)) or {}).values())
    assert total == 5000


@pytest.mark.parametrize(
    "wrong",
    [Sample(8, sm=101, timestamp=stamp(13)), Sample(8, sm=50, timestamp=stamp(16.1))],
    ids=["more than all", "from the future"],
)
def test_what_cannot_be_true_is_left_out_and_counted(asking: Asking, wrong: Sample) -> None:
    asking.ask(at(10))
    asking.says(wrong, Sample(7, sm=50, timestamp=stamp(14)))
    assert asking.ask(at(15)) == {7: 2000}
    assert asking.sheet.errors == [codes.OUT_OF_RANGE]
    asking.says(Sample(7, sm=50, timestamp=stamp(19)))
    assert asking.ask(at(20)) == {7: 2500}, "and moved nothing"


def test_an_old_entry_handed_out_again_counts_once(asking: Asking) -> None:
    asking.ask(at(10))
    asking.says(Sample(7, sm=50, timestamp=stamp(14)))
    asking.ask(at(15))
    assert asking.ask(at(20)) == {}


def test_several_entries_of_one_process_follow_each_other(asking: Asking) -> None:
    asking.ask(at(10))
    asking.says(
        Sample(7, sm=100, timestamp=stamp(14)),
        Sample(7, sm=50, timestamp=stamp(12)),
    )
    assert asking.ask(at(15)) == {7: 1000 + 2000}


@pytest.mark.parametrize("by", [-3600, -1, 0.5, 86400])
def test_a_clock_that_was_set_leaves_one_look_unknown(asking: Asking, by: float) -> None:
    asking.ask(at(0))
    asking.ask(at(5))
    asking.says(Sample(7, sm=50, timestamp=stamp(9 + by)))
    assert asking.ask(at(10, by)) is None
    asking.says(Sample(7, sm=50, timestamp=stamp(14 + by)))
    assert asking.ask(at(15, by)) == {7: 2000}


def test_a_clock_that_is_slewed_is_as_good_as_any(asking: Asking) -> None:
    asking.ask(at(0))
    asking.says(Sample(7, sm=50, timestamp=stamp(4)))
    assert asking.ask(at(5, 0.005)) == {7: 2000}


def test_after_a_time_that_the_driver_does_not_keep_nothing_is_known(asking: Asking) -> None:
    asking.ask(at(0))
    asking.says(Sample(7, sm=100, timestamp=stamp(20)))
    assert asking.ask(at(20)) is None
    asking.says(Sample(7, sm=100, timestamp=stamp(24)))
    assert asking.ask(at(25)) == {7: 4000}


@pytest.mark.parametrize("code", [999, codes.NOT_SUPPORTED, codes.NO_PERMISSION])
def test_what_failed_is_unknown_and_so_is_the_time_until_it_works(
    asking: Asking, code: int
) -> None:
    asking.ask(at(0))
    asking.ask(at(5))
    asking.says(errors={"nvmlDeviceGetProcessUtilization": code})
    assert asking.one.read(asking.sheet, at(10)) == code
    assert asking.one.by_pid is None
    asking.says(Sample(7, sm=100, timestamp=stamp(14)))
    assert asking.ask(at(15)) is None
    asking.says(Sample(7, sm=100, timestamp=stamp(19)))
    assert asking.ask(at(20)) == {7: 4000}


@pytest.mark.parametrize("count", [127, 128, 129, 700])
def test_however_many_there_are(asking: Asking, count: int) -> None:
    asking.ask(at(0))
    asking.says(*(Sample(pid, sm=1, timestamp=stamp(4)) for pid in range(count)))
    assert asking.ask(at(5)) == dict.fromkeys(range(count), 40)


def test_there_is_an_end_to_the_room(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_utilization, "_MAX_SIZE", 256)
    asking.ask(at(0))
    asking.says(*(Sample(pid, sm=1, timestamp=stamp(4)) for pid in range(300)))
    assert asking.one.read(asking.sheet, at(5)) == codes.INSUFFICIENT_SIZE
    assert asking.one.by_pid is None


# -- the driver as it is played ------------------------------------------------------------------


def given_out(since: int) -> Sequence[pynvml.c_nvmlProcessUtilizationSample_t]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    try:
        found = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError_NotFound:
        return []
    return list(found)


def test_the_driver_reports_the_mean_up_to_when_it_found_a_process_last(
    fake_nvml: FakeNvml,
) -> None:
    pynvml.nvmlInit()
    begun = time.monotonic() - 10.05
    over = Load(8, 50, start=2, end=4, pulse=(0.2, 0.1))
    fake_nvml.set(replace(h100s(1, loads=[Load(7, 40), over]), t0=begun))
    found = {sample.pid: sample for sample in given_out(0)}
    assert found[7].smUtil < 40, "of all that is kept, four seconds before it began among it"
    assert found[8].timeStamp < found[7].timeStamp - 5_000_000, "it was found last at 4"
    since = found[8].timeStamp
    assert {sample.pid: sample.smUtil for sample in given_out(since)} == {7: 40}
    both = {sample.pid: sample.smUtil for sample in given_out(since - 1_999_999)}
    assert both == {7: 40, 8: 25}
    assert given_out(found[7].timeStamp + 60_000_000) == []


def test_the_driver_keeps_fourteen_seconds(fake_nvml: FakeNvml) -> None:
    pynvml.nvmlInit()
    begun = time.monotonic() - 60
    fake_nvml.set(replace(h100s(1, loads=[Load(7, 100, end=45), Load(8, 50, start=30)]), t0=begun))
    assert {sample.pid: sample.smUtil for sample in given_out(0)} == {8: 50}
