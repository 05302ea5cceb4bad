"""The findings of `podgpu doctor` about driver, library and device nodes, for each fault."""

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from pipeline.diagnostics.context import DoctorContext
from sources.nvml.diagnosis import library_checks
from tests.fakes.nvml import FakeNvml, Scenario, h100s
from tests.fakes.nvml.nodes import h100
from tests.podgpu.doctor.support import context, healthy, is_bad, of, verdicts, write
from tests.sources.nvml.doctor_helpers import PROFILING, examined

ALL_OK = {
    "nvml.driver": "ok",
    "nvml.library": "ok",
    "nvml.versions": "ok",
    "nvml.nodes": "ok",
    "nvml.access": "ok",
    "nvml.gpus": "ok",
    "nvml.mig": "ok",
    "nvml.profiling": "ok",
    "nvml.processes": "ok",
}


async def test_a_healthy_node_is_ok_and_nvml_is_shut_down(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(h100s(2))
    ctx = context(tmp_path, PROFILING, roots=healthy(tmp_path, 2))
    found = await examined(ctx)
    assert verdicts(found) == ALL_OK
    assert of(found, "nvml.driver").observed == "driver 580.95.05, 2 GPUs"
    calls = fake_nvml.calls()
    assert calls["nvmlShutdown"] == calls["nvmlInitWithFlags"] == 2


@pytest.mark.slow
async def test_a_hanging_library_keeps_the_earlier_findings(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(Scenario(gpus=[h100()], block={"nvmlInitWithFlags": 20}))
    found = await examined(context(tmp_path, roots=healthy(tmp_path), deadline=0.4))
    assert of(found, "nvml.driver").verdict is Verdict.OK
    is_bad(of(found, "check.deadline"), "failure", "no result within 0.36 s", "dmesg")


# -- nvml.driver ---------------------------------------------------------------------------------


def without_driver(ctx: DoctorContext) -> None:
    (ctx.roots.proc / "driver/nvidia/version").unlink()
    (ctx.roots.sys / "module/nvidia/version").unlink()
    (ctx.roots.sys / "module/nvidia").rmdir()


def without_gpu(ctx: DoctorContext) -> None:
    without_driver(ctx)
    for vendor in (ctx.roots.sys / "bus/pci/devices").glob("*/vendor"):
        vendor.write_text("0x8086\n")


def with_nouveau(ctx: DoctorContext) -> None:
    without_driver(ctx)
    (ctx.roots.sys / "module/nouveau").mkdir()


DRIVERS = [
    (without_driver, "no NVIDIA driver on the host; 1 NVIDIA GPUs", "install the driver"),
    (without_gpu, "no NVIDIA GPU on its PCI bus", "nodes with a GPU (nodeSelector"),
    (with_nouveau, "the driver nouveau is loaded", "blacklist nouveau"),
]


@pytest.mark.parametrize(("break_host", "observed", "fix"), DRIVERS)
async def test_a_host_without_a_driver_is_one_failure(
    fake_nvml: FakeNvml,
    tmp_path: Path,
    break_host: Callable[[DoctorContext], None],
    observed: str,
    fix: str,
) -> None:
    fake_nvml.set(Scenario(init_error=9))
    ctx = context(tmp_path)
    break_host(ctx)
    found = await examined(ctx)
    is_bad(of(found, "nvml.driver"), "failure", observed, fix)
    all_verdicts = verdicts(found)
    assert all_verdicts["nvml.versions"] == all_verdicts["nvml.nodes"] == "skipped", (
        "the fault has one finding"
    )
    assert [finding.check for finding in found if finding.fix] == ["nvml.driver"]


@pytest.mark.slow
@pytest.mark.parametrize("hangs", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"])
async def test_a_hanging_call_keeps_the_findings_until_then(
    fake_nvml: FakeNvml, tmp_path: Path, hangs: str
) -> None:
    fake_nvml.set(Scenario(gpus=[h100()], block={hangs: 20}))
    all_verdicts = verdicts(
        await examined(context(tmp_path, roots=healthy(tmp_path), deadline=1.0))
    )
    assert all_verdicts["check.deadline"] == "failure"
    found = {each: all_verdicts[each] for each in ("nvml.library", "nvml.versions", "nvml.nodes")}
    assert set(found.values()) == {"ok"}, all_verdicts


async def test_the_windows_driver_of_wsl_counts_as_a_driver(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = context(tmp_path)
    without_driver(ctx)
    write(ctx.roots.dev / "dxg")
    assert of(await examined(ctx), "nvml.driver").verdict is Verdict.OK


# -- nvml.library --------------------------------------------------------------------------------

ENVIRONS = [
    ({}, "set NVIDIA_VISIBLE_DEVICES=all; and run podgpu with the runtime class"),
    (
        {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,graphics"},
        "set NVIDIA_DRIVER_CAPABILITIES=utility; and run",
    ),
    ({"NVIDIA_VISIBLE_DEVICES": "all"}, "runtimeClassName: nvidia"),
]


@pytest.mark.parametrize(("environ", "fix"), ENVIRONS)
async def test_a_missing_library_beside_a_driver_points_to_the_runtime_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], fix: str
) -> None:
    monkeypatch.setattr(library_checks, "SONAME", "libnvidia-ml-none.so.1")
    found = await examined(context(tmp_path, environ=environ))
    is_bad(of(found, "nvml.library"), "failure", "driver 580.95.05 is on the host", fix)
    assert "cannot open shared object file" in of(found, "nvml.library").observed


async def test_a_missing_library_of_the_windows_driver_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_checks, "SONAME", "libnvidia-ml-none.so.1")
    ctx = context(tmp_path)
    without_driver(ctx)
    write(ctx.roots.dev / "dxg")
    found = await examined(ctx)
    is_bad(
        of(found, "nvml.library"), "failure", "the driver is the Windows driver", "/usr/lib/wsl/lib"
    )
    assert of(found, "nvml.nodes").verdict is Verdict.SKIPPED


@pytest.mark.parametrize("code", [9, 17, 999])
async def test_a_failing_windows_driver_is_reported(
    fake_nvml: FakeNvml, tmp_path: Path, code: int
) -> None:
    fake_nvml.set(Scenario(init_error=code))
    ctx = context(tmp_path)
    without_driver(ctx)
    write(ctx.roots.dev / "dxg")
    bad = [finding for finding in await examined(ctx) if finding.fix]
    assert [finding.check for finding in bad] == ["nvml.access"]


async def test_without_a_driver_the_library_check_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_checks, "SONAME", "libnvidia-ml-none.so.1")
    ctx = context(tmp_path)
    without_driver(ctx)
    assert of(await examined(ctx), "nvml.library").verdict is Verdict.SKIPPED


@pytest.mark.slow
def test_the_library_is_searched_by_the_dynamic_linker() -> None:
    """The check runs in a separate process, because this one has loaded the fake."""
    code = (
        "from pipeline.diagnostics.context import DoctorContext\n"
        "from sources.nvml.diagnosis.library_checks import check_library, read_driver\n"
        "from tests.podgpu.doctor.support import config\n"
        "ctx = DoctorContext(config(''))\n"
        "found = check_library(read_driver(ctx.roots), ctx)[0][0]\n"
        "print(f'{found.subject}: {found.observed}')\n"
    )
    environ = {**os.environ, "LD_LIBRARY_PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    with pytest.raises(OSError, match="libnvidia-ml-none") as caught:
        ctypes.CDLL("libnvidia-ml-none.so.1")
    expected = str(caught.value).replace("libnvidia-ml-none", "libnvidia-ml")
    assert done.stdout.startswith((expected, "libnvidia-ml.so.1: found")), "or this machine has one"


# -- nvml.versions, nvml.access ------------------------------------------------------------------

CODES = [
    (18, "nvml.versions", "driver 580.95.05", "reload the driver or reboot"),
    (4, "nvml.access", "no_permission (4)", "NVIDIA_VISIBLE_DEVICES=all"),
    (999, "nvml.access", "unknown (999): cannot access the devices", "restart podgpu's pod"),
    (9, "nvml.access", "driver_not_loaded (9)", "dmesg"),
    (17, "nvml.access", "operating_system (17)", "dmesg"),
]


@pytest.mark.parametrize("row", CODES, ids=lambda row: str(row[0]))
async def test_a_failed_initialisation_has_a_fix_by_error_code(
    fake_nvml: FakeNvml, tmp_path: Path, row: tuple[int, str, str, str]
) -> None:
    code, check, observed, fix = row
    fake_nvml.set(Scenario(init_error=code))
    bad = [finding for finding in await examined(context(tmp_path)) if finding.fix]
    assert [finding.check for finding in bad] == [check]
    is_bad(bad[0], "failure", observed, fix)


async def test_if_all_calls_fail_a_daemon_reload_is_the_likely_cause(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    fake_nvml.set(replace(h100s(2), errors={"*": 999}))
    found = await examined(context(tmp_path))
    bad = [finding for finding in found if finding.fix]
    assert [finding.check for finding in bad] == ["nvml.access"]
    is_bad(bad[0], "failure", "every call returned unknown (999)", "daemon-reload of systemd")


async def test_a_folder_in_place_of_a_device_node_is_a_failure(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = context(tmp_path)
    node = ctx.roots.dev / "nvidiactl"
    node.unlink()
    node.mkdir()
    bad = [finding for finding in await examined(ctx) if finding.fix]
    assert [finding.check for finding in bad] == ["nvml.access"]
    is_bad(bad[0], "failure", "cannot be opened: is a directory", "dmesg")


REFUSALS = [
    (errno.EPERM, "operation not permitted", "daemon-reload of systemd"),
    (errno.EACCES, "permission denied", "give podgpu's user read and write permission"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_eperm_and_eacces_have_different_fixes(
    fake_nvml: FakeNvml,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: tuple[int, str, str],
) -> None:
    """Root gets neither error for a file in a folder, so the test replaces the call."""

    number, observed, fix = refusal
    usual = os.open

    def refuse(path: str | Path, flags: int) -> int:
        if Path(path).name == "nvidiactl":
            raise OSError(number, os.strerror(number))
        return usual(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    found = await examined(context(tmp_path))
    bad = [finding for finding in found if finding.fix]
    is_bad(bad[0], "failure", observed, fix)


# -- nvml.nodes ----------------------------------------------------------------------------------


async def test_missing_device_nodes_are_named(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(Scenario(init_error=9))
    ctx = context(tmp_path)
    (ctx.roots.dev / "nvidiactl").unlink()
    (ctx.roots.dev / "nvidia0").unlink()
    found = await examined(ctx)
    finding = of(found, "nvml.nodes")
    is_bad(finding, "failure", "2 of 2 are missing here", "runtimeClassName: nvidia")
    assert f"{ctx.roots.dev}/nvidiactl" in finding.observed
    assert [finding.check for finding in found if finding.fix] == ["nvml.nodes"]
