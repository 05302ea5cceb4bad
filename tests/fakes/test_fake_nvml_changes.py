"""The fake NVML while its scenario changes: losses, blocks, events and other processes."""

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fakes.helpers import error_of, start
from tests.fakes.nvml import (
    ALL_ONES_32,
    NOTHING_SUPPORTED,
    FakeNvml,
    Mig,
    Ramp,
    h100s,
    mig_node,
    mixed,
    slices,
)


@pytest.mark.parametrize("code", [6, 2])
def test_handles_of_destroyed_mig_devices_return_an_error(fake_nvml: FakeNvml, code: int) -> None:
    gpu = start(fake_nvml, h100s(1, mig=slices(0, "3g.40gb", "1g.10gb")))
    kept = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    gone = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)
    new = Mig(gi=2, profile="4g.40gb", uuid="MIG-new")
    scenario = h100s(1, mig=[slices(0, "3g.40gb")[0], new])
    fake_nvml.set(replace(scenario, stale_mig_error=code))
    assert error_of(pynvml.nvmlDeviceGetMemoryInfo, gone) == code
    assert pynvml.nvmlDeviceGetGpuInstanceId(kept) == 7
    found = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)
    assert pynvml.nvmlDeviceGetUUID(found) == "MIG-new"


def test_all_calls_on_a_lost_gpu_return_15(fake_nvml: FakeNvml) -> None:
    start(fake_nvml, mixed())
    gpu = pynvml.nvmlDeviceGetHandleByIndex(1)
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    fake_nvml.set(mixed().with_gpu(1, lost=True))
    assert pynvml.nvmlDeviceGetCount() == 4
    assert error_of(pynvml.nvmlDeviceGetPowerUsage, gpu) == 15
    assert error_of(pynvml.nvmlDeviceGetUUID, mig) == 15
    assert error_of(pynvml.nvmlDeviceGetHandleByIndex, 1) == 15
    assert pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(2)) == 74517
    fake_nvml.set(mixed().without_gpu(1))
    assert pynvml.nvmlDeviceGetCount() == 3
    assert error_of(pynvml.nvmlDeviceGetPowerUsage, gpu) == 15
    assert pynvml.nvmlDeviceGetMinorNumber(pynvml.nvmlDeviceGetHandleByIndex(1)) == 1


def test_unsupported_calls_return_3(fake_nvml: FakeNvml) -> None:
    h = start(fake_nvml, h100s(1, errors=NOTHING_SUPPORTED))
    assert pynvml.nvmlDeviceGetUUID(h).startswith("GPU-")
    assert error_of(pynvml.nvmlDeviceGetMemoryInfo, h) == 3
    assert error_of(pynvml.nvmlDeviceGetFieldValues, h, [82]) == 3
    assert error_of(pynvml.nvmlDeviceGetComputeRunningProcesses, h) == 3


def test_a_misspelt_value_is_refused() -> None:
    with pytest.raises(ValueError, match="powr_usage"):
        h100s(1, values={"powr_usage": 1}).text()


def test_a_name_without_version_means_every_version(fake_nvml: FakeNvml) -> None:
    name = "nvmlDeviceGetComputeRunningProcesses"
    h = start(fake_nvml, h100s(1, errors={name: 4, f"{name}_v2": 0}))
    assert error_of(pynvml.nvmlDeviceGetComputeRunningProcesses, h) == 4
    assert pynvml.nvmlDeviceGetComputeRunningProcesses_v2(h) == []


def test_errors_apply_to_one_function_or_to_all(fake_nvml: FakeNvml) -> None:
    h = start(fake_nvml)
    fake_nvml.set(h100s(1, errors={"nvmlDeviceGetPowerUsage": 4}, values={"temperature": None}))
    assert error_of(pynvml.nvmlDeviceGetPowerUsage, h) == 4
    assert error_of(pynvml.nvmlDeviceGetTemperature, h, 0) == 3
    fake_nvml.set(replace(h100s(1), errors={"*": 999}))
    assert error_of(pynvml.nvmlDeviceGetCount) == 999
    assert error_of(pynvml.nvmlDeviceGetUUID, h) == 999
    assert error_of(pynvml.nvmlSystemGetDriverVersion) == 999
    pynvml.nvmlInit()


def test_a_blocked_call_does_not_block_other_calls(fake_nvml: FakeNvml) -> None:
    start(fake_nvml, h100s(2).with_gpu(1, block={"nvmlDeviceGetPowerUsage": 60}))
    quick, slow = (pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(2))
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(pynvml.nvmlDeviceGetPowerUsage(slow)))
    thread.start()
    started = time.monotonic()
    assert pynvml.nvmlDeviceGetPowerUsage(quick) == 74517
    assert pynvml.nvmlDeviceGetTemperature(slow, 0) == 43
    # A rewrite that still blocks the call keeps it there.
    fake_nvml.set(h100s(2).with_gpu(1, block={"nvmlDeviceGetPowerUsage": 50}))
    thread.join(0.1)
    assert thread.is_alive()
    fake_nvml.set(h100s(2, values={"power_usage": 5}))
    thread.join(5)
    assert answers == [5]
    assert time.monotonic() - started < 5


def test_a_short_block_ends_by_itself(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(replace(h100s(1), block={"nvmlDeviceGetHandleByIndex_v2": 0.05}))
    started = time.monotonic()
    start(fake_nvml)
    assert 0.05 <= time.monotonic() - started < 0.1 + 1


def test_a_ramp_continues_over_a_rewrite(fake_nvml: FakeNvml) -> None:
    h = start(fake_nvml, h100s(1, values={"energy": Ramp(1000, 1e6)}))
    first = pynvml.nvmlDeviceGetTotalEnergyConsumption(h)
    fake_nvml.set(h100s(1, values={"energy": Ramp(1000, 1e6), "temperature": 50}))
    time.sleep(0.01)
    second = pynvml.nvmlDeviceGetTotalEnergyConsumption(h)
    (third,) = pynvml.nvmlDeviceGetFieldValues(h, [83])
    assert 1000 <= first < second
    assert second - first >= 10_000
    assert third.value.ullVal >= second


def watch(*handles: Any) -> Any:
    events = pynvml.nvmlEventSetCreate()
    for handle in handles:
        supported = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
        assert supported & pynvml.nvmlEventTypeXidCriticalError
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    return events


def test_xid_events_reach_the_sets_that_watch_the_gpu(fake_nvml: FakeNvml) -> None:
    start(fake_nvml, mixed())
    handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(4)]
    fake_nvml.push_xid(0, 13)  # before anything watches
    events = watch(*handles[:2])
    assert error_of(pynvml.nvmlEventSetWait, events, 0) == 10
    fake_nvml.push_xid(0, 31)
    fake_nvml.push_xid(2, 48)  # this GPU is not watched
    fake_nvml.push_xid(0, 31)
    fake_nvml.push_xid(1, 94, gi=8, ci=0)
    events_ = [pynvml.nvmlEventSetWait_v2(events, 1000) for _ in range(3)]
    assert [(e.eventType, e.eventData, e.gpuInstanceId, e.computeInstanceId) for e in events_] == [
        (8, 31, ALL_ONES_32, ALL_ONES_32),
        (8, 31, ALL_ONES_32, ALL_ONES_32),
        (8, 94, 8, 0),
    ]
    assert [pynvml.nvmlDeviceGetIndex(e.device) for e in events_] == [0, 0, 1]
    started = time.monotonic()
    assert error_of(pynvml.nvmlEventSetWait_v2, events, 50) == 10
    assert 0.05 <= time.monotonic() - started < 1
    pynvml.nvmlEventSetFree(events)
    assert error_of(pynvml.nvmlEventSetWait_v2, events, 0) == 2


def test_an_event_wakes_a_waiting_thread(fake_nvml: FakeNvml) -> None:
    events = watch(start(fake_nvml))
    seen: list[int] = []
    thread = threading.Thread(
        target=lambda: seen.append(pynvml.nvmlEventSetWait_v2(events, 20_000).eventData)
    )
    thread.start()
    time.sleep(0.02)
    fake_nvml.push_xid(0, 79)
    thread.join(5)
    assert seen == [79]
    fake_nvml.push_xid(0, 79)
    fake_nvml.set(h100s(1, lost=True))
    assert pynvml.nvmlEventSetWait_v2(events, 0).eventData == 79
    assert error_of(pynvml.nvmlEventSetWait_v2, events, 1000) == 15


def test_events_on_a_mig_handle_are_not_supported(fake_nvml: FakeNvml) -> None:
    gpu = start(fake_nvml, h100s(1, mig=slices(0, "1g.10gb")))
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    events = pynvml.nvmlEventSetCreate()
    assert error_of(pynvml.nvmlDeviceRegisterEvents, mig, 8, events) == 3


def test_peers_have_topology_levels_and_link_states(fake_nvml: FakeNvml) -> None:
    start(fake_nvml, h100s(2))
    one, two = (pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(2))
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(one, two) == 30
    assert [pynvml.nvmlDeviceGetP2PStatus(one, two, n) for n in (0, 4)] == [0, 5]
    assert pynvml.nvmlDeviceGetNvLinkState(one, 17) == 1
    assert error_of(pynvml.nvmlDeviceGetNvLinkState, one, 18) == 3


def test_calls_are_counted(fake_nvml: FakeNvml) -> None:
    h = start(fake_nvml)
    fake_nvml.calls(reset=True)
    for _ in range(3):
        pynvml.nvmlDeviceGetPowerUsage(h)
    assert fake_nvml.calls() == {"nvmlDeviceGetPowerUsage": 3}
    assert fake_nvml.calls(reset=True) == {"nvmlDeviceGetPowerUsage": 3}
    assert fake_nvml.calls() == {}


@pytest.mark.slow
def test_threads_may_call_while_the_scenario_is_rewritten(fake_nvml: FakeNvml) -> None:
    start(fake_nvml, mig_node())
    stop = threading.Event()
    failures: list[BaseException] = []

    def hammer(index: int) -> None:
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            while not stop.is_set():
                mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 6)
                assert pynvml.nvmlDeviceGetGpuInstanceId(mig) == 13
                pynvml.nvmlDeviceGetComputeRunningProcesses(mig)
                assert pynvml.nvmlDeviceGetPowerUsage(gpu) in (74517, 9)
        except BaseException as problem:  # noqa: BLE001 - the assertion of a thread
            failures.append(problem)

    threads = [threading.Thread(target=hammer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for turn in range(10):
        fake_nvml.set(mig_node().with_gpu(3, values={"power_usage": 9 if turn % 2 else 74517}))
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []


PROGRAM = """
import pynvml, sys
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(gpu, 8, events)
print(pynvml.nvmlDeviceGetPowerUsage(gpu), flush=True)
print(pynvml.nvmlEventSetWait_v2(events, 10000).eventData, flush=True)
sys.stdin.readline()
print(pynvml.nvmlDeviceGetPowerUsage(gpu), flush=True)
"""


def test_another_process_can_use_the_fake(tmp_path: Path) -> None:
    fake = FakeNvml(h100s(1, values={"power_usage": 1}), tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=fake.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        fake.push_xid(0, 63)
        assert process.stdout.readline() == "63\n"
        fake.set(h100s(1, values={"power_usage": 2}))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "2\n"
    assert process.returncode == 0
    assert fake.subprocess_calls()["nvmlDeviceGetPowerUsage"] == 2


def test_pynvml_is_reset_by_the_fixture(fake_nvml: FakeNvml) -> None:
    assert pynvml.nvmlLib is None
    assert pynvml._nvmlLib_refcount == 0
    assert error_of(pynvml.nvmlDeviceGetCount) == 1
