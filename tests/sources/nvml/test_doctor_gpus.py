"""The findings of `podgpu doctor` about GPUs, MIG and profiling, for each fault."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from tests.fakes.nvml import FakeNvml, Scenario, h100s
from tests.fakes.nvml.cards import a100
from tests.fakes.nvml.nodes import h100, slices
from tests.podgpu.doctor.support import context, healthy, is_bad, of, write
from tests.sources.nvml.doctor_helpers import PROFILING, examined

# -- nvml.gpus -----------------------------------------------------------------------------------


async def test_a_lost_gpu_is_named_and_the_others_are_checked(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(h100s(3).with_gpu(1, lost=True))
    found = await examined(context(tmp_path, roots=healthy(tmp_path, 3)))
    finding = of(found, "nvml.gpus")
    is_bad(finding, "failure", "gpu_is_lost (15)", "nvidia-smi --gpu-reset")
    assert finding.subject.startswith("GPU 1")
    assert of(found, "nvml.mig").verdict is Verdict.OK


ERRORS = [
    (15, "gpu_is_lost (15)", "drain the node, then reset the GPU", ""),
    (16, "reset_required (16)", "drain the node, then reset the GPU", ""),
    (4, "no_permission (4)", "pass this GPU to the container", "dmesg"),
    (8, "insufficient_power (8)", "power cables", "dmesg"),
    (9, "driver_not_loaded (9)", "dmesg", "reset the GPU"),
    (10, "timeout (10)", "dmesg", "reset the GPU"),
    (2, "invalid_argument (2)", "dmesg", "reset the GPU"),
    (17, "operating_system (17)", "dmesg", "reset the GPU"),
]


# The second call differs for the code 4 only; a reset is the fix of the code 15.
CALLS = [
    *(("nvmlDeviceGetHandleByIndex_v2", row) for row in ERRORS),
    *(("nvmlDeviceGetUUID", row) for row in ERRORS if row[0] in (4, 10, 15)),
]


@pytest.mark.parametrize(
    ("call", "row"), CALLS, ids=lambda one: one if type(one) is str else one[1]
)
async def test_the_fix_depends_on_the_error_and_only_lost_gpus_are_reset(
    fake_nvml: FakeNvml, tmp_path: Path, row: tuple[int, str, str, str], call: str
) -> None:
    code, observed, fix, other_fix = row
    fake_nvml.set(replace(h100s(2), errors={call: code}))
    found = await examined(context(tmp_path, roots=healthy(tmp_path, 2)))
    bad = [each for each in found if each.check == "nvml.gpus" and each.fix]
    if call == "nvmlDeviceGetUUID" and code == 4:
        assert bad == [], "a GPU that refuses one call works"
        return
    assert len(bad) == 2
    for each in bad:
        is_bad(each, "failure", observed, fix)
        assert not other_fix or other_fix not in each.fix


COUNTS = [
    (Scenario(), 1, "shows no GPU", "NVIDIA_VISIBLE_DEVICES=all"),
    (h100s(1), 4, "shows 1 of the 4 GPUs", "fallen off the bus"),
    (replace(h100s(1), errors={"nvmlDeviceGetCount": 2}), 1, "invalid_argument (2)", "dmesg"),
]


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: row[2])
async def test_missing_gpus_are_a_failure(
    fake_nvml: FakeNvml, tmp_path: Path, row: tuple[Scenario, int, str, str]
) -> None:
    scenario, gpus, observed, fix = row
    fake_nvml.set(scenario)
    found = await examined(context(tmp_path, roots=healthy(tmp_path, gpus)))
    is_bad(of(found, "nvml.gpus"), "failure", observed, fix)


# -- nvml.mig ------------------------------------------------------------------------------------


async def test_a_pending_mig_mode_is_a_warning(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(h100s(1, values={"mig_mode_current": 0, "mig_mode_pending": 1}))
    found = await examined(context(tmp_path))
    finding = of(found, "nvml.mig")
    is_bad(finding, "warning", "off, on after a reset", "reset it (nvidia-smi --gpu-reset")


@pytest.mark.parametrize("code", [4, 8, 9, 10, 999])
async def test_an_unreadable_mig_mode_is_a_warning(
    fake_nvml: FakeNvml, tmp_path: Path, code: int
) -> None:
    fake_nvml.set(Scenario(gpus=[h100()], errors={"nvmlDeviceGetMigMode": code}))
    finding = of(await examined(context(tmp_path)), "nvml.mig")
    is_bad(finding, "warning", f"({code})", "dmesg")


@pytest.mark.parametrize("code", [3, 13])
async def test_mig_is_off_on_a_gpu_without_mig_support(
    fake_nvml: FakeNvml, tmp_path: Path, code: int
) -> None:
    fake_nvml.set(Scenario(gpus=[h100()], errors={"nvmlDeviceGetMigMode": code}))
    finding = of(await examined(context(tmp_path)), "nvml.mig")
    assert (finding.verdict, finding.observed) == (Verdict.OK, "off")


async def test_mig_mode_without_a_visible_instance_is_a_warning(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(Scenario(gpus=[h100(mig=[])]))
    found = await examined(context(tmp_path))
    is_bad(
        of(found, "nvml.mig"), "warning", "no instance is visible", "NVIDIA_MIG_MONITOR_DEVICES=all"
    )
    fake_nvml.set(Scenario(gpus=[h100(mig=slices(0, "3g.40gb"))]))
    assert of(await examined(context(tmp_path / "b")), "nvml.mig").verdict is Verdict.OK


# -- nvml.profiling ------------------------------------------------------------------------------

ENGINE = "sources: {gpus: {kind: nvml}, dcgm: {kind: hostengine}}\n"


COUNTERS = {
    "default fields": "",
    "default fields and another group": "counters: {also: [health]}\n",
    "profiling group": PROFILING,
    "file with a profiling field": (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, busy\nDCGM_FI_DEV_GPU_TEMP, gauge, warm\n"
    ),
    "file without profiling fields": "DCGM_FI_DEV_GPU_TEMP, gauge, warm\n",
}


def config_text(folder: Path, which: str) -> str:
    text = COUNTERS[which]
    if "gauge" not in text:
        return text
    return f"counters: {{file: {write(folder / 'counters.csv', text)}, own: false}}\n"


@pytest.mark.parametrize(
    ("which", "hopper", "before"),
    [
        ("default fields", "ok", "skipped"),
        ("default fields and another group", "ok", "skipped"),
        ("profiling group", "ok", "warning"),
        ("file with a profiling field", "ok", "warning"),
        ("file without profiling fields", "skipped", "skipped"),
    ],
)
async def test_missing_profiling_is_a_warning_only_if_fields_were_chosen(
    fake_nvml: FakeNvml, tmp_path: Path, which: str, hopper: str, before: str
) -> None:
    text = config_text(tmp_path, which)
    for name, card, verdict in (("hopper", h100(), hopper), ("before", a100(), before)):
        fake_nvml.set(Scenario(gpus=[card]))
        finding = of(await examined(context(tmp_path / name, text)), "nvml.profiling")
        assert finding.verdict.value == verdict, finding
        not_requested = finding.observed == "no profiling field is requested"
        assert not_requested == (which == "file without profiling fields"), finding
        if verdict == "skipped" and not not_requested:
            assert "default fields are missing" in finding.observed


async def test_the_profiling_check_is_skipped_without_gpus(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(Scenario())
    finding = of(await examined(context(tmp_path)), "nvml.profiling")
    assert finding.verdict is Verdict.SKIPPED, finding


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("", Verdict.SKIPPED), (PROFILING, Verdict.WARNING), (PROFILING + ENGINE, Verdict.OK)],
)
async def test_profiling_before_hopper_needs_a_hostengine_source(
    fake_nvml: FakeNvml, tmp_path: Path, text: str, verdict: Verdict
) -> None:
    fake_nvml.set(Scenario(gpus=[a100()]))
    finding = of(await examined(context(tmp_path, text)), "nvml.profiling")
    assert finding.verdict is verdict, finding
    if verdict is Verdict.WARNING:
        is_bad(finding, "warning", "not supported by the architecture", "kind hostengine")
