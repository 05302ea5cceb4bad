"""The fake NVML, seen through the real pynvml module."""

import pynvml
import pytest

from tests.fakes.helpers import error_of, start
from tests.fakes.nvml import (
    ALL_ONES_32,
    ALL_ONES_64,
    FakeNvml,
    Field,
    Proc,
    Sample,
    Scenario,
    a100,
    build,
    h100s,
    linked,
    mig_node,
    mixed,
    slices,
    t4,
)


def test_the_library_is_built_once() -> None:
    folder = build()
    before = (folder / "libnvidia-ml.so.1").stat().st_mtime_ns
    assert build() == folder
    assert (folder / "libnvidia-ml.so.1").stat().st_mtime_ns == before


def test_pynvml_loads_the_fake_by_its_soname(fake_nvml: FakeNvml) -> None:
    start(fake_nvml)
    assert getattr(pynvml.nvmlLib, "_name", None) == "libnvidia-ml.so.1"
    assert pynvml.nvmlSystemGetDriverVersion() == "580.159.04"
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.159.04"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000


def test_init_and_shutdown_are_counted(fake_nvml: FakeNvml) -> None:
    pynvml._LoadNvmlLibrary()
    assert error_of(pynvml.nvmlDeviceGetCount) == 1
    assert error_of(pynvml.nvmlShutdown) == 1
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 1
    pynvml.nvmlShutdown()
    assert error_of(pynvml.nvmlDeviceGetCount) == 1


@pytest.mark.parametrize("code", [9, 12])
def test_init_returns_the_error_until_it_is_removed(fake_nvml: FakeNvml, code: int) -> None:
    fake_nvml.set(Scenario(init_error=code))
    assert error_of(pynvml.nvmlInit) == code
    fake_nvml.set(h100s(2))
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2


def test_error_strings_are_those_of_nvml(fake_nvml: FakeNvml) -> None:
    start(fake_nvml)
    assert pynvml.nvmlErrorString(15) == "GPU is lost"
    assert pynvml.nvmlErrorString(999) == "Unknown Error"


def test_a_device_has_its_ids_and_is_found_by_them(fake_nvml: FakeNvml) -> None:
    h = start(fake_nvml, mixed())
    uuid = pynvml.nvmlDeviceGetUUID(h)
    assert uuid == mixed().gpus[0].uuid
    assert (pynvml.nvmlDeviceGetIndex(h), pynvml.nvmlDeviceGetMinorNumber(h)) == (0, 3)
    assert pynvml.nvmlDeviceGetName(h) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetSerial(h) == "1650000000000"
    assert pynvml.nvmlDeviceGetBoardPartNumber(h) == "695-00000-0000-000"
    assert pynvml.nvmlDeviceGetVbiosVersion(h) == "96.00.DA.00.0C"
    assert pynvml.nvmlDeviceGetArchitecture(h) == 9
    assert pynvml.nvmlDeviceGetBrand(h) == 14
    assert pynvml.nvmlDeviceGetCudaComputeCapability(h) == (9, 0)
    pci = pynvml.nvmlDeviceGetPciInfo(h)
    assert (pci.busId, pci.busIdLegacy) == ("00000000:00:06.0", "0000:00:06.0")
    assert (pci.domain, pci.bus, pci.device, pci.pciDeviceId) == (0, 0, 6, 590352606)
    for again in (
        pynvml.nvmlDeviceGetHandleByUUID(uuid),
        pynvml.nvmlDeviceGetHandleByPciBusId("0000:00:06.0"),
        pynvml.nvmlDeviceGetHandleBySerial("1650000000000"),
    ):
        assert pynvml.nvmlDeviceGetUUID(again) == uuid
    assert error_of(pynvml.nvmlDeviceGetHandleByUUID, "GPU-none") == 6
    assert error_of(pynvml.nvmlDeviceGetHandleByIndex, 4) == 2


def test_readings_are_those_of_an_idle_h100(fake_nvml: FakeNvml) -> None:
    h = start(fake_nvml)
    memory = pynvml.nvmlDeviceGetMemoryInfo(h)
    assert (memory.total, memory.free, memory.used) == (85520809984, 85017493504, 503316480)
    memory = pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2)
    assert (memory.total, memory.reserved, memory.used) == (85520809984, 503316480, 0)
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Free == 137437249536
    rates = pynvml.nvmlDeviceGetUtilizationRates(h)
    assert (rates.gpu, rates.memory) == (0, 0)
    for engine in ("Encoder", "Decoder", "Jpg", "Ofa"):
        assert getattr(pynvml, f"nvmlDeviceGet{engine}Utilization")(h) == [0, 100000]
    assert pynvml.nvmlDeviceGetTemperature(h, 0) == 43
    assert pynvml.nvmlDeviceGetTemperatureV(h, 0) == 43
    assert [pynvml.nvmlDeviceGetTemperatureThreshold(h, n) for n in range(4)] == [95, 89, 95, 87]
    assert error_of(pynvml.nvmlDeviceGetTemperatureThreshold, h, 4) == 3
    assert [pynvml.nvmlDeviceGetClockInfo(h, n) for n in range(4)] == [885, 885, 2619, 900]
    assert [pynvml.nvmlDeviceGetMaxClockInfo(h, n) for n in range(4)] == [1980, 1980, 2619, 1545]
    assert pynvml.nvmlDeviceGetPowerUsage(h) == 74517
    assert pynvml.nvmlDeviceGetPowerManagementLimit(h) == 700000
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(h) == 700000
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(h) == [200000, 700000]
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(h) == 700000
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(h) == 3832567
    assert pynvml.nvmlDeviceGetPerformanceState(h) == 0
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(h) == 1
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(h) == 1
    assert pynvml.nvmlDeviceGetSupportedClocksEventReasons(h) == 511
    assert pynvml.nvmlDeviceGetSupportedClocksThrottleReasons(h) == 511
    assert pynvml.nvmlDeviceGetPcieReplayCounter(h) == 1
    assert pynvml.nvmlDeviceGetPcieThroughput(h, 0) == 3521
    assert pynvml.nvmlDeviceGetEccMode(h) == [1, 1]
    assert pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 1) == 0
    assert pynvml.nvmlDeviceGetMemoryErrorCounter(h, 1, 1, 2) == 0
    assert pynvml.nvmlDeviceGetRemappedRows(h) == (0, 0, 0, 0)
    assert error_of(pynvml.nvmlDeviceGetNvLinkState, h, 0) == 3


def test_fans_links_licence_and_firmware_are_returned(fake_nvml: FakeNvml) -> None:
    extra = linked(links=2, old=True)
    extra["values"] |= {"fans": 1, "fan_speed_0": 40, "licence_supported": 1, "licence_state": 1}
    h = start(fake_nvml, Scenario(gpus=[a100(0, **extra), t4(1)]))
    assert pynvml.nvmlDeviceGetName(h) == "NVIDIA A100-SXM4-80GB"
    assert pynvml.nvmlDeviceGetFanSpeed_v2(h, 0) == 40
    assert error_of(pynvml.nvmlDeviceGetFanSpeed_v2, h, 1) == 2
    licence = pynvml.nvmlDeviceGetGridLicensableFeatures_v4(h)
    assert (licence.isGridLicenseSupported, licence.licensableFeaturesCount) == (1, 1)
    assert licence.gridLicensableFeatures[0].featureState == 1
    assert [pynvml.nvmlDeviceGetInforomVersion(h, part) for part in (0, 1)] == ["2.1", "7.16"]
    assert error_of(pynvml.nvmlDeviceGetInforomVersion, h, 2) == 3
    assert pynvml.nvmlDeviceGetGspFirmwareVersion(h) == b"580.159.04"
    assert pynvml.nvmlDeviceGetNvLinkErrorCounter(h, 1, 3) == 31
    assert pynvml.nvmlDeviceGetNvLinkState(h, 1) == 1
    values = pynvml.nvmlDeviceGetFieldValues(h, [(138, 1), (139, 0xFFFFFFFF), 38, 91, 192])
    assert [value.nvmlReturn for value in values] == [0] * 5
    assert [values[at].value.ullVal for at in range(3)] == [1000, 4000, 38]
    assert [values[at].value.uiVal for at in (3, 4)] == [2, 400_000]
    other = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert error_of(pynvml.nvmlDeviceGetRemappedRows, other) == 3
    assert pynvml.nvmlDeviceGetFieldValues(other, [29])[0].value.ullVal == 0


def test_field_values_have_their_type_value_and_error(fake_nvml: FakeNvml) -> None:
    fields: dict[int | tuple[int, int], Field] = {
        147: Field(1.5, "double"),
        150: Field(error=4),
        193: Field(-8, "int"),
        (203, 1): Field(7, "ull"),
    }
    h = start(fake_nvml, h100s(1, fields=fields))
    ids = [82, 83, 94, 186, 193, 147, 150, 151, (203, 1)]
    found = pynvml.nvmlDeviceGetFieldValues(h, ids)
    assert [v.nvmlReturn for v in found] == [0, 0, 0, 0, 0, 0, 4, 3, 0]
    assert [v.valueType for v in found[:6]] == [1, 3, 1, 1, 5, 0]
    assert [v.value.uiVal for v in (found[0], found[2], found[3])] == [46, 1, 74517]
    assert (found[1].value.ullVal, found[4].value.siVal, found[5].value.dVal) == (3832567, -8, 1.5)
    assert found[8].value.ullVal == 7
    assert [v.nvmlReturn for v in pynvml.nvmlDeviceClearFieldValues(h, [82, 999])] == [0, 3]


def test_processes_are_in_the_list_of_their_kind(fake_nvml: FakeNvml) -> None:
    h = start(fake_nvml)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(h) == []
    assert error_of(pynvml.nvmlDeviceGetProcessUtilization, h, 0) == 6
    processes = [Proc(11, 100), Proc(12, ALL_ONES_64), Proc(13, 7, "graphics"), Proc(14, 8, "mps")]
    fake_nvml.set(h100s(1, processes=processes, samples=[Sample(11, sm=60, timestamp=5)]))
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(h)
    assert [(p.pid, p.usedGpuMemory, p.gpuInstanceId) for p in found] == [
        (11, 100, ALL_ONES_32),
        (12, None, ALL_ONES_32),
    ]
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses_v2(h)] == [11, 12]
    assert [p.pid for p in pynvml.nvmlDeviceGetGraphicsRunningProcesses(h)] == [13]
    assert [p.pid for p in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(h)] == [14]
    (sample,) = pynvml.nvmlDeviceGetProcessUtilization(h, 0)
    assert (sample.pid, sample.smUtil, sample.timeStamp) == (11, 60, 5)
    assert error_of(pynvml.nvmlDeviceGetProcessUtilization, h, 5) == 6


def test_all_ones_are_returned_as_given(fake_nvml: FakeNvml) -> None:
    values = {"util_gpu": ALL_ONES_32, "power_usage": ALL_ONES_32, "energy": ALL_ONES_64}
    h = start(fake_nvml, h100s(1, values={**values, "memory_used": ALL_ONES_64}))
    assert pynvml.nvmlDeviceGetUtilizationRates(h).gpu == ALL_ONES_32
    assert pynvml.nvmlDeviceGetPowerUsage(h) == ALL_ONES_32
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(h) == ALL_ONES_64
    assert pynvml.nvmlDeviceGetMemoryInfo(h).used == ALL_ONES_64
    energy, power = pynvml.nvmlDeviceGetFieldValues(h, [83, 186])
    assert (energy.value.ullVal, power.value.uiVal) == (ALL_ONES_64, ALL_ONES_32)


def test_a_node_of_mig_devices(fake_nvml: FakeNvml) -> None:
    start(fake_nvml, mig_node())
    assert pynvml.nvmlDeviceGetCount() == 8
    uuids = set()
    for index in range(8):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        assert pynvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
        assert error_of(pynvml.nvmlDeviceGetUtilizationRates, gpu) == 3
        assert error_of(pynvml.nvmlDeviceGetGpuInstanceId, gpu) == 2
        assert not pynvml.nvmlDeviceIsMigDeviceHandle(gpu).value
        for at in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, at)
            uuids.add(pynvml.nvmlDeviceGetUUID(mig))
            assert pynvml.nvmlDeviceIsMigDeviceHandle(mig).value
            assert pynvml.nvmlDeviceGetGpuInstanceId(mig) == 7 + at
            assert pynvml.nvmlDeviceGetComputeInstanceId(mig) == 0
    assert len(uuids) == 56


def test_mig_and_whole_gpus_together(fake_nvml: FakeNvml) -> None:
    instances = slices(1, "3g.40gb", "1c.2g.20gb", processes=[Proc(21, 5)])
    whole = start(fake_nvml, mixed().with_gpu(1, mig=instances, processes=[Proc(20, 4)]))
    assert pynvml.nvmlDeviceGetMigMode(whole) == [0, 0]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(whole) == 0
    assert error_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, 0) == 2
    assert error_of(pynvml.nvmlDeviceGetAttributes, whole) == 3
    gpu = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert [
        (p.pid, p.gpuInstanceId, p.computeInstanceId)
        for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    ] == [(20, ALL_ONES_32, ALL_ONES_32), (21, 7, 0), (21, 8, 0)]
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)
    assert error_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2) == 6
    assert pynvml.nvmlDeviceGetName(mig) == "NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb"
    assert pynvml.nvmlDeviceGetIndex(mig) == 1
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert pynvml.nvmlDeviceGetIndex(parent) == 1
    attributes = pynvml.nvmlDeviceGetAttributes(mig)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (2, 1)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (16, 19968)
    memory = pynvml.nvmlDeviceGetMemoryInfo(mig)
    assert (memory.total, memory.used) == (19968 << 20, 5)
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(mig)] == [21]
    again = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(mig))
    assert pynvml.nvmlDeviceGetGpuInstanceId(again) == 8
    for call, *arguments in (
        (pynvml.nvmlDeviceGetUtilizationRates,),
        (pynvml.nvmlDeviceGetPowerUsage,),
        (pynvml.nvmlDeviceGetTotalEnergyConsumption,),
        (pynvml.nvmlDeviceGetMinorNumber,),
        (pynvml.nvmlDeviceGetPciInfo,),
        (pynvml.nvmlDeviceGetTemperature, 0),
        (pynvml.nvmlDeviceGetClockInfo, 1),
        (pynvml.nvmlDeviceGetProcessUtilization, 0),
    ):
        assert error_of(call, mig, *arguments) == 3


def test_mig_profiles(fake_nvml: FakeNvml) -> None:
    start(fake_nvml, mixed())
    gpu = pynvml.nvmlDeviceGetHandleByIndex(1)
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu, 8)
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    assert (info.id, info.placement.start, info.placement.size) == (8, 3, 2)
    names = {}
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number)
        except pynvml.NVMLError_NotSupported:
            continue
        names[profile.id] = profile.name
    assert names[info.profileId] == "MIG 2g.20gb"
    whole = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(
        gpu, pynvml.NVML_GPU_INSTANCE_PROFILE_7_SLICE
    )
    assert (whole.decoderCount, whole.jpegCount, whole.ofaCount) == (7, 7, 1)
    compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    assert pynvml.nvmlComputeInstanceGetInfo(compute).id == 0
    assert error_of(pynvml.nvmlDeviceGetGpuInstanceById, gpu, 1) == 6
