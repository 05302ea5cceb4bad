"""A library or driver that is missing, not ready, reloaded or shut down."""

import asyncio
from dataclasses import replace

import pytest

from pipeline.base.errors import TransientError
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, h100s
from tests.sources.nvml.harness import (
    GPU,
    counter,
    fields,
    inventories,
    next_rounds,
    options,
    rounds,
    running,
    ups,
)
from tests.support.contexts import FakeSourceContext

INIT_ERRORS = [
    (9, "driver_not_loaded", "modprobe nvidia"),
    (12, "library_not_found", "runtimeClassName: nvidia"),
    (12, "library_not_found", "install the NVIDIA driver; if the node has it"),
    (18, "lib_rm_version_mismatch", "reload the driver or reboot"),
    (4, "no_permission", "/dev/nvidiactl"),
    (999, "unknown", "dmesg"),
    (15, "gpu_is_lost", "dmesg"),
]


@pytest.mark.parametrize(("code", "name", "fix"), INIT_ERRORS)
async def test_the_message_of_an_init_error_has_its_name_and_fix(
    fake_nvml: FakeNvml, code: int, name: str, fix: str
) -> None:
    fake_nvml.set(replace(h100s(1), init_error=code))
    with pytest.raises(TransientError) as caught:
        await NvmlSource(options()).run(FakeSourceContext())
    assert name in str(caught.value)
    assert fix in str(caught.value)


async def test_a_missing_library_is_named_in_the_error(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_found(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("pynvml.CDLL", not_found)
    with pytest.raises(TransientError, match=r"libnvidia-ml\.so\.1 is missing"):
        await NvmlSource(options()).run(FakeSourceContext())


async def test_the_source_starts_when_the_driver_becomes_available(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options())
    for code in (12, 9):
        fake_nvml.set(replace(h100s(2), init_error=code))
        with pytest.raises(TransientError):
            await source.run(ctx)
    assert ctx.events == []
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        assert ups(await next_rounds(ctx)) == dict.fromkeys(GPU[:2], 1)


@pytest.mark.slow
@pytest.mark.parametrize("code", [1, 9, 18])
@pytest.mark.parametrize(
    "call",
    ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetCount_v2", "nvmlDeviceGetComputeRunningProcesses_v3"],
)
async def test_a_reloaded_driver_is_initialised_again(
    fake_nvml: FakeNvml, code: int, call: str
) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options())
    fake_nvml.set(h100s(2))
    task = asyncio.create_task(source.run(ctx))
    await next_rounds(ctx)
    fake_nvml.set(replace(h100s(2), errors={call: code}))
    with pytest.raises(TransientError, match="reloaded or upgraded"):
        await task
    assert ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:2], 0)
    calls = fake_nvml.calls(reset=True)
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        samples = await next_rounds(ctx)
        assert ups(samples) == dict.fromkeys(GPU[:2], 1)
        assert "power_watts" in fields(samples, GPU[1])
    calls = fake_nvml.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1
    assert inventories(ctx) == [GPU[:2], GPU[:2]], "each run reports its inventory"


@pytest.mark.slow
async def test_a_gpu_missing_after_the_reload_is_down(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options())
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        await next_rounds(ctx)
    fake_nvml.set(h100s(1))
    async with running(ctx, source):
        assert ups(await next_rounds(ctx)) == {GPU[0]: 1, GPU[1]: 0}


async def test_stopping_shuts_nvml_down_and_frees_the_event_set(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx):
        await next_rounds(ctx)
    calls = fake_nvml.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1
    assert calls["nvmlEventSetCreate"] == calls["nvmlEventSetFree"] == 1


async def test_the_duration_of_rounds_is_measured(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx):
        await next_rounds(ctx, 3)
    name = "podgpu_sample_duration_seconds"
    assert counter(ctx, name, "_count") == pytest.approx(len(rounds(ctx)), abs=1)
    assert 0 < counter(ctx, name, "_sum") < 1


@pytest.mark.slow
async def test_no_call_changes_a_setting(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await next_rounds(ctx, 3)
        ctx.hint(GPU[0])
        await next_rounds(ctx)
    assert [call for call in fake_nvml.calls() if "Set" in call.replace("EventSet", "")] == []
