"""Process utilisation: each entry is weighted by its own time and counted once."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pynvml
import pytest

from pipeline.model import NS, Instant
from sources.nvml import codes
from sources.nvml.library import Library
from sources.nvml.process_utilization import Utilization
from sources.nvml.reader_parts import GpuReadings
from tests.fakes.nvml import FakeNvml, Load, Sample, Scenario, h100, h100s

WALL_S = 1_700_000_000
MS = 1_000_000


def at(seconds: float, set_by: float = 0) -> Instant:
    """Return a time, on a wall clock that was set forward by `set_by` seconds."""
    ns = round(seconds * NS)
    return Instant(ns, WALL_S * NS + ns + round(set_by * NS))


def stamp(seconds: float) -> int:
    return round((WALL_S + seconds) * 1e6)


class OneGpu:
    """One GPU whose process utilisation is read at times that the test chooses."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fake = fake
        nvml = Library()
        nvml.open()
        _, handle = nvml.handle_at(0)
        self.utilization = Utilization(nvml, handle)
        self.readings = GpuReadings("", at(0))

    def reports(self, *samples: Sample, errors: Mapping[str, int] | None = None) -> None:
        self.fake.set(Scenario(gpus=[h100(samples=samples, errors=errors or {})]))

    def read(self, when: Instant) -> dict[int, int] | None:
        """Read the utilisation, and return busy milliseconds by pid."""
        assert self.utilization.read(self.readings, when) == codes.OK
        found = self.utilization.by_pid
        return None if found is None else {pid: e.busy_ns // MS for pid, e in found.items()}


@pytest.fixture
def one_gpu(fake_nvml: FakeNvml) -> OneGpu:
    return OneGpu(fake_nvml)


def test_the_first_read_has_no_busy_time(one_gpu: OneGpu) -> None:
    one_gpu.reports(Sample(7, sm=90, timestamp=stamp(9.9)))
    assert one_gpu.read(at(10)) is None
    assert one_gpu.read(at(15)) == {}, "earlier samples of the driver are not counted"


def test_an_entry_counts_up_to_its_own_timestamp(one_gpu: OneGpu) -> None:
    one_gpu.read(at(10))
    one_gpu.reports(Sample(7, sm=50, timestamp=stamp(14.8)), Sample(8, sm=25, timestamp=stamp(12)))
    assert one_gpu.read(at(15)) == {7: 2400, 8: 500}
    one_gpu.reports(
        Sample(7, sm=50, timestamp=stamp(19.8)), Sample(8, sm=25, timestamp=stamp(18.8))
    )
    assert one_gpu.read(at(20)) == {7: 2500, 8: 1000}, "from the newest timestamp on, for both"


def test_busy_time_is_exact_to_the_nanosecond(one_gpu: OneGpu) -> None:
    one_gpu.read(at(10))
    one_gpu.reports(Sample(7, sm=37, timestamp=stamp(13.123457)))
    one_gpu.utilization.read(one_gpu.readings, at(15))
    assert one_gpu.utilization.by_pid is not None
    assert one_gpu.utilization.by_pid[7].busy_ns == 37 * 3_123_457 * 10
    assert one_gpu.utilization.by_pid[7].stamp_us == stamp(13.123457)


def test_without_entries_no_process_is_busy(one_gpu: OneGpu) -> None:
    one_gpu.read(at(10))
    assert one_gpu.read(at(15)) == {}


@pytest.mark.parametrize("rest", [5, 10, 60])
def test_idle_time_is_not_counted_for_the_next_process(one_gpu: OneGpu, rest: int) -> None:
    one_gpu.read(at(0))
    for second in range(5, rest + 1, 5):
        one_gpu.read(at(second))
    one_gpu.reports(Sample(7, sm=100, timestamp=stamp(rest + 5)))
    assert one_gpu.read(at(rest + 5)) == {7: 6000}, "and one sampling period, which may be a second"


def test_reads_without_new_samples_lose_no_busy_time(one_gpu: OneGpu) -> None:
    """The driver has new samples at every fourth of twenty reads per second."""
    one_gpu.read(at(0))
    total = 0
    for tick in range(1, 101):
        last = tick // 4 * 4 / 20
        one_gpu.reports(*([Sample(7, sm=100, timestamp=stamp(last))] if last else []))
        total += sum((one_gpu.read(at(tick / 20)) or {}).values())
    assert total == 5000


@pytest.mark.parametrize(
    "wrong",
    [Sample(8, sm=101, timestamp=stamp(13)), Sample(8, sm=50, timestamp=stamp(16.1))],
    ids=["more than 100 percent", "timestamp in the future"],
)
def test_impossible_entries_are_dropped_and_counted(one_gpu: OneGpu, wrong: Sample) -> None:
    one_gpu.read(at(10))
    one_gpu.reports(wrong, Sample(7, sm=50, timestamp=stamp(14)))
    assert one_gpu.read(at(15)) == {7: 2000}
    assert one_gpu.readings.errors == [codes.OUT_OF_RANGE]
    one_gpu.reports(Sample(7, sm=50, timestamp=stamp(19)))
    assert one_gpu.read(at(20)) == {7: 2500}, "and the dropped entry did not move the start"


def test_a_repeated_entry_counts_once(one_gpu: OneGpu) -> None:
    one_gpu.read(at(10))
    one_gpu.reports(Sample(7, sm=50, timestamp=stamp(14)))
    one_gpu.read(at(15))
    assert one_gpu.read(at(20)) == {}


def test_several_entries_of_one_process_are_consecutive(one_gpu: OneGpu) -> None:
    one_gpu.read(at(10))
    one_gpu.reports(
        Sample(7, sm=100, timestamp=stamp(14)),
        Sample(7, sm=50, timestamp=stamp(12)),
    )
    assert one_gpu.read(at(15)) == {7: 1000 + 2000}


@pytest.mark.parametrize("by", [-3600, -1, 0.5, 86400])
def test_busy_time_is_unknown_once_after_the_clock_was_set(one_gpu: OneGpu, by: float) -> None:
    one_gpu.read(at(0))
    one_gpu.read(at(5))
    one_gpu.reports(Sample(7, sm=50, timestamp=stamp(9 + by)))
    assert one_gpu.read(at(10, by)) is None
    one_gpu.reports(Sample(7, sm=50, timestamp=stamp(14 + by)))
    assert one_gpu.read(at(15, by)) == {7: 2000}


def test_a_slewed_clock_makes_no_difference(one_gpu: OneGpu) -> None:
    one_gpu.read(at(0))
    one_gpu.reports(Sample(7, sm=50, timestamp=stamp(4)))
    assert one_gpu.read(at(5, 0.005)) == {7: 2000}


def test_busy_time_is_unknown_after_longer_than_the_driver_keeps(one_gpu: OneGpu) -> None:
    one_gpu.read(at(0))
    one_gpu.reports(Sample(7, sm=100, timestamp=stamp(20)))
    assert one_gpu.read(at(20)) is None
    one_gpu.reports(Sample(7, sm=100, timestamp=stamp(24)))
    assert one_gpu.read(at(25)) == {7: 4000}


@pytest.mark.parametrize("code", [999, codes.NOT_SUPPORTED, codes.NO_PERMISSION])
def test_busy_time_is_unknown_until_the_call_works_again(one_gpu: OneGpu, code: int) -> None:
    one_gpu.read(at(0))
    one_gpu.read(at(5))
    one_gpu.reports(errors={"nvmlDeviceGetProcessUtilization": code})
    assert one_gpu.utilization.read(one_gpu.readings, at(10)) == code
    assert one_gpu.utilization.by_pid is None
    one_gpu.reports(Sample(7, sm=100, timestamp=stamp(14)))
    assert one_gpu.read(at(15)) is None
    one_gpu.reports(Sample(7, sm=100, timestamp=stamp(19)))
    assert one_gpu.read(at(20)) == {7: 4000}


@pytest.mark.parametrize("count", [127, 128, 129, 700])
def test_any_number_of_entries_is_read(one_gpu: OneGpu, count: int) -> None:
    one_gpu.read(at(0))
    one_gpu.reports(*(Sample(pid, sm=1, timestamp=stamp(4)) for pid in range(count)))
    assert one_gpu.read(at(5)) == dict.fromkeys(range(count), 40)


def test_the_size_of_the_buffer_is_limited(
    one_gpu: OneGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_gpu.utilization._array, "_max_size", 256)
    one_gpu.read(at(0))
    one_gpu.reports(*(Sample(pid, sm=1, timestamp=stamp(4)) for pid in range(300)))
    assert one_gpu.utilization.read(one_gpu.readings, at(5)) == codes.INSUFFICIENT_SIZE
    assert one_gpu.utilization.by_pid is None


# -- the fake driver -----------------------------------------------------------------------------


def entries(since: int) -> Sequence[pynvml.c_nvmlProcessUtilizationSample_t]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    try:
        found = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError_NotFound:
        return []
    return list(found)


def test_the_driver_reports_the_mean_until_a_process_was_last_busy(
    fake_nvml: FakeNvml,
) -> None:
    pynvml.nvmlInit()
    start = time.monotonic() - 10.05
    ended = Load(8, 50, start=2, end=4, pulse=(0.2, 0.1))
    fake_nvml.set(replace(h100s(1, loads=[Load(7, 40), ended]), t0=start))
    found = {sample.pid: sample for sample in entries(0)}
    assert found[7].smUtil < 40, "the mean includes four seconds before it started"
    assert found[8].timeStamp < found[7].timeStamp - 5_000_000, "it was last found busy at 4 s"
    since = found[8].timeStamp
    assert {sample.pid: sample.smUtil for sample in entries(since)} == {7: 40}
    both = {sample.pid: sample.smUtil for sample in entries(since - 1_999_999)}
    assert both == {7: 40, 8: 25}
    assert entries(found[7].timeStamp + 60_000_000) == []


def test_the_driver_keeps_samples_of_fourteen_seconds(fake_nvml: FakeNvml) -> None:
    pynvml.nvmlInit()
    start = time.monotonic() - 60
    fake_nvml.set(replace(h100s(1, loads=[Load(7, 100, end=45), Load(8, 50, start=30)]), t0=start))
    assert {sample.pid: sample.smUtil for sample in entries(0)} == {8: 50}
