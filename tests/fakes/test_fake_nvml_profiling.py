"""The fake NVML's GPM samples and rings of samples, seen through the real pynvml module."""

import itertools
import math
import time
from typing import Any

import pynvml
import pytest

from tests.fakes.helpers import error_of, start
from tests.fakes.nvml import FakeNvml, Gpm, Sampled, Scenario, h100, h100s, slices


def metrics(first: Any, second: Any, *ids: int) -> list[tuple[int, float]]:
    """Return code and value of each metric between two samples."""
    get = pynvml.c_nvmlGpmMetricsGet_t()
    get.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    get.sample1, get.sample2, get.numMetrics = first, second, len(ids)
    for place, number in enumerate(ids):
        get.metrics[place].metricId = number
    pynvml.nvmlGpmMetricsGet(get)
    return [(get.metrics[at].nvmlReturn, get.metrics[at].value) for at in range(len(ids))]


def take(gpu: Any, gi: int | None = None) -> Any:
    sample = pynvml.nvmlGpmSampleAlloc()
    if gi is None:
        return pynvml.nvmlGpmSampleGet(gpu, sample)
    return pynvml.nvmlGpmMigSampleGet(gpu, gi, sample)


def test_a_metric_is_the_mean_between_two_samples(fake_nvml: FakeNvml) -> None:
    known = {1: Gpm(40.5), 2: Gpm(10, 100), 3: Gpm(error=20), 4: None}
    scenario = h100s(1, gpm=known)
    origin = time.monotonic()
    gpu = start(fake_nvml, Scenario(gpus=scenario.gpus, t0=origin))
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice == 1
    begin = time.monotonic()
    first = take(gpu)
    time.sleep(0.12)
    end = time.monotonic()
    second = take(gpu)
    constant, ramp, failed, lacking = metrics(first, second, 1, 2, 3, 4)
    assert (constant, failed[0], lacking[0]) == ((0, 40.5), 20, 3)
    assert ramp[1] == pytest.approx(10 + 100 * ((begin + end) / 2 - origin), abs=1.5)
    pynvml.nvmlGpmSampleFree(first)
    assert fake_nvml.gpm_samples() == (1, 0)


def test_samples_that_are_too_close_result_in_nan(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml)
    ((code, value),) = metrics(take(gpu), take(gpu), 1)
    assert code == 0
    assert math.isnan(value)


def test_misuse_of_samples_is_reported(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml, h100s(2, mig=slices(0, "3g.40gb", "3g.40gb")))
    other = pynvml.nvmlDeviceGetHandleByIndex(1)
    whole, instance, freed = take(gpu), take(gpu, 7), take(gpu)
    pynvml.nvmlGpmSampleFree(freed)
    misuses = [
        (pynvml.nvmlGpmSampleFree, freed),
        (pynvml.nvmlGpmSampleGet, gpu, freed),
        (metrics, freed, whole, 1),
        (metrics, whole, take(other), 1),
        (metrics, whole, instance, 1),
        (metrics, instance, take(gpu, 8), 1),
        (metrics, pynvml.nvmlGpmSampleAlloc(), whole, 1),
    ]
    for count, (call, *args) in enumerate(misuses, 1):
        assert error_of(call, *args) == 2
        assert fake_nvml.gpm_samples()[1] == count


def test_an_instance_with_a_reused_id_is_another_device(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml, h100s(1, mig=slices(0, "3g.40gb")))
    before = take(gpu, 7)
    fake_nvml.set(Scenario(gpus=[h100(0, mig=slices(1, "3g.40gb"))]))
    assert error_of(metrics, before, take(gpu, 7), 1) == 2
    assert fake_nvml.gpm_samples()[1] == 1
    assert error_of(take, gpu, 9) == 6


def test_cards_and_devices_without_gpm(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml, h100s(1, mig=slices(0, "3g.40gb"), values={"gpm_supported": 0}))
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice == 0
    assert error_of(take, gpu) == 3
    assert error_of(take, gpu, 7) == 3
    gpu = start(fake_nvml, h100s(1))
    assert error_of(take, gpu, 7) == 3


def stamps(gpu: Any, kind: int, since: int = 0) -> list[int]:
    return [sample.timeStamp for sample in pynvml.nvmlDeviceGetSamples(gpu, kind, since)[1]]


@pytest.mark.slow
def test_a_ring_keeps_the_newest_samples_and_wraps(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml, h100s(1, sampled={0: Sampled(250_000, period=0.01, room=20)}))
    kind, samples = pynvml.nvmlDeviceGetSamples(gpu, 0, 0)
    assert kind == 1
    assert {sample.sampleValue.uiVal for sample in samples} == {250_000}
    first = [sample.timeStamp for sample in samples]
    assert len(first) == 19
    assert {b - a for a, b in itertools.pairwise(first)} <= {9_999, 10_000, 10_001}
    assert abs(first[-1] / 1e6 - time.time()) < 0.1
    time.sleep(0.05)
    newer = stamps(gpu, 0, first[-1])
    assert newer
    assert min(newer) > first[-1]
    time.sleep(0.25)
    assert min(stamps(gpu, 0, first[-1])) > first[-1] + 10_001, "some samples are lost"
    assert error_of(stamps, gpu, 0, 1 << 62) == 6


def test_a_pulse_recurs(fake_nvml: FakeNvml) -> None:
    ring = Sampled(10, pulse=(90, 0.1, 0.03), period=0.01, room=101)
    gpu = start(fake_nvml, h100s(1, sampled={1: ring}))
    values = [s.sampleValue.uiVal for s in pynvml.nvmlDeviceGetSamples(gpu, 1, 0)[1]]
    assert set(values) == {10, 90}
    assert sum(value == 90 for value in values) == pytest.approx(30, abs=3)


def test_missing_and_empty_rings_return_errors(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml, h100s(1, sampled={0: None}))
    assert error_of(stamps, gpu, 0) == 3
    assert error_of(stamps, gpu, 5) == 6, "an H100's driver samples no clocks"
    assert error_of(stamps, gpu, 99) == 2
    gpu = start(fake_nvml, h100s(1, mig=slices(0, "3g.40gb")))
    assert error_of(stamps, gpu, 1) == 3
    assert stamps(gpu, 0)


def test_the_clock_of_the_rings_can_be_set(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml, h100s(1))
    before = stamps(gpu, 0)[-1]
    fake_nvml.set(h100s(1, values={"sampling_shift": -1_000_000_000}))
    assert stamps(gpu, 0)[-1] < before
    fake_nvml.set(h100s(1, values={"sampling_began": 10_000_000}))
    assert error_of(stamps, gpu, 0) == 6, "no sample is taken before the start"
