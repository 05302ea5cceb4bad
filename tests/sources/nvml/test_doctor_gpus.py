"""What the doctor says of GPUs, MIG and profiling, each fault provoked."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from tests.fakes.nvml import FakeNvml, Scenario, h100s
from tests.fakes.nvml.cards import a100
from tests.fakes.nvml.nodes import h100, slices
from tests.podgpu.doctor.support import context, healthy, is_bad, of, write
from tests.sources.nvml.doctoring import PROFILING, looked

# -- nvml.gpus -----------------------------------------------------------------------------------


async def test_a_lost_gpu_is_named_and_the_others_are_looked_at(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(h100s(3).with_gpu(1, lost=True))
    found = await looked(context(tmp_path, roots=healthy(tmp_path, 3)))
    given_out = of(found, "nvml.gpus")
    is_bad(given_out, "failure", "gpu_is_lost (15)", "nvidia-smi --gpu-reset")
    assert given_out.subject.startswith("GPU 1")
    assert of(found, "nvml.mig").verdict is Verdict.OK


ANSWERS = [
    (15, "gpu_is_lost (15)", "drain the node, then reset the GPU", ""),
    (16, "reset_required (16)", "drain the node, then reset the GPU", ""),
    (4, "no_permission (4)", "pass this GPU to the container", "dmesg"),
    (8, "insufficient_power (8)", "power cables", "dmesg"),
    (9, "driver_not_loaded (9)", "dmesg", "reset the GPU"),
    (10, "timeout (10)", "dmesg", "reset the GPU"),
    (2, "invalid_argument (2)", "dmesg", "reset the GPU"),
    (17, "operating_system (17)", "dmesg", "reset the GPU"),
]


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row[1])
async def test_a_gpu_s_fix_is_by_what_it_answers_and_a_reset_for_a_lost_one_alone(
    fake_nvml: FakeNvml, tmp_path: Path, row: tuple[int, str, str, str], call: str
) -> None:
    code, saw, repair, never = row
    fake_nvml.set(replace(h100s(2), errors={call: code}))
    found = await looked(context(tmp_path, roots=healthy(tmp_path, 2)))
    bad = [each for each in found if each.check == "nvml.gpus" and each.fix]
    if call == "nvmlDeviceGetUUID" and code == 4:
        assert bad == [], "a GPU that refuses one reading works"
        return
    assert len(bad) == 2
    for each in bad:
        is_bad(each, "failure", saw, repair)
        assert not never or never not in each.fix


COUNTS = [
    (Scenario(), 1, "shows no GPU", "NVIDIA_VISIBLE_DEVICES=all"),
    (h100s(1), 4, "shows 1 of the 4 GPUs", "fallen off the bus"),
    (replace(h100s(1), errors={"nvmlDeviceGetCount": 2}), 1, "invalid_argument (2)", "dmesg"),
]


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: row[2])
async def test_gpus_that_are_not_shown(
    fake_nvml: FakeNvml, tmp_path: Path, row: tuple[Scenario, int, str, str]
) -> None:
    scenario, gpus, saw, repair = row
    fake_nvml.set(scenario)
    found = await looked(context(tmp_path, roots=healthy(tmp_path, gpus)))
    is_bad(of(found, "nvml.gpus"), "failure", saw, repair)


# -- nvml.mig ------------------------------------------------------------------------------------


async def test_a_mig_mode_that_waits_for_a_reset(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(h100s(1, values={"mig_mode_current": 0, "mig_mode_pending": 1}))
    found = await looked(context(tmp_path))
    given_out = of(found, "nvml.mig")
    is_bad(given_out, "warning", "off, on is pending", "reset it (nvidia-smi --gpu-reset")


@pytest.mark.parametrize("code", [4, 8, 9, 10, 999])
async def test_a_mig_mode_that_is_not_reported_is_not_off(
    fake_nvml: FakeNvml, tmp_path: Path, code: int
) -> None:
    fake_nvml.set(Scenario(gpus=[h100()], errors={"nvmlDeviceGetMigMode": code}))
    given_out = of(await looked(context(tmp_path)), "nvml.mig")
    is_bad(given_out, "warning", f"({code})", "dmesg")


@pytest.mark.parametrize("code", [3, 13])
async def test_a_gpu_without_mig_has_it_off(fake_nvml: FakeNvml, tmp_path: Path, code: int) -> None:
    fake_nvml.set(Scenario(gpus=[h100()], errors={"nvmlDeviceGetMigMode": code}))
    given_out = of(await looked(context(tmp_path)), "nvml.mig")
    assert (given_out.verdict, given_out.observed) == (Verdict.OK, "off")


async def test_mig_instances_that_no_one_sees(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(Scenario(gpus=[h100(mig=[])]))
    found = await looked(context(tmp_path))
    is_bad(
        of(found, "nvml.mig"), "warning", "no instance is visible", "NVIDIA_MIG_MONITOR_DEVICES=all"
    )
    fake_nvml.set(Scenario(gpus=[h100(mig=slices(0, "3g.40gb"))]))
    assert of(await looked(context(tmp_path / "b")), "nvml.mig").verdict is Verdict.OK


# -- nvml.profiling ------------------------------------------------------------------------------

ENGINE = "sources: {gpus: {kind: nvml}, dcgm: {kind: hostengine}}\n"


LISTS = {
    "the usual fields": "",
    "the usual ones, and others of other groups": "counters: {also: [health]}\n",
    "the group": PROFILING,
    "a list": "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, busy\nDCGM_FI_DEV_GPU_TEMP, gauge, warm\n",
    "a list without any": "DCGM_FI_DEV_GPU_TEMP, gauge, warm\n",
}


def asking(folder: Path, which: str) -> str:
    text = LISTS[which]
    if "gauge" not in text:
        return text
    return f"counters: {{file: {write(folder / 'counters.csv', text)}, own: false}}\n"


@pytest.mark.parametrize(
    ("which", "hopper", "before"),
    [
        ("the usual fields", "ok", "skipped"),
        ("the usual ones, and others of other groups", "ok", "skipped"),
        ("the group", "ok", "warning"),
        ("a list", "ok", "warning"),
        ("a list without any", "skipped", "skipped"),
    ],
)
async def test_what_the_page_shows_decides_and_a_fault_is_what_was_chosen(
    fake_nvml: FakeNvml, tmp_path: Path, which: str, hopper: str, before: str
) -> None:
    text = asking(tmp_path, which)
    for name, card, verdict in (("hopper", h100(), hopper), ("before", a100(), before)):
        fake_nvml.set(Scenario(gpus=[card]))
        given_out = of(await looked(context(tmp_path / name, text)), "nvml.profiling")
        assert given_out.verdict.value == verdict, given_out
        unasked = given_out.observed == "no profiling field is requested"
        assert unasked == (which == "a list without any"), given_out
        if verdict == "skipped" and not unasked:
            assert "default fields are missing" in given_out.observed


async def test_where_no_gpu_answers_no_one_says_that_all_have_them(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(Scenario())
    given_out = of(await looked(context(tmp_path)), "nvml.profiling")
    assert given_out.verdict is Verdict.SKIPPED, given_out


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("", Verdict.SKIPPED), (PROFILING, Verdict.WARNING), (PROFILING + ENGINE, Verdict.OK)],
)
async def test_profiling_of_cards_before_hopper(
    fake_nvml: FakeNvml, tmp_path: Path, text: str, verdict: Verdict
) -> None:
    fake_nvml.set(Scenario(gpus=[a100()]))
    given_out = of(await looked(context(tmp_path, text)), "nvml.profiling")
    assert given_out.verdict is verdict, given_out
    if verdict is Verdict.WARNING:
        is_bad(given_out, "warning", "not supported by the architecture", "kind hostengine")
