"""The findings of `podgpu doctor` about the kernel log, for each fault."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from pipeline.diagnostics.context import DoctorContext
from pipeline.host.procfs import HOST_PID_NAMESPACE
from sources.kernel.doctor import examine
from sources.kernel.options import Options
from tests.podgpu.doctor.support import context, is_bad, of
from tests.sources.kernel.logs import Kmsg, xid


@pytest.fixture
def ctx(tmp_path: Path) -> DoctorContext:
    return context(tmp_path / "ctx")


async def log(ctx: DoctorContext, path: Path) -> Finding:
    return of(await findings_of(partial(examine, Options(path=path), ctx)), "kernel.log")


async def processes(ctx: DoctorContext, proc: Path = Path("/proc")) -> Finding:
    return of(
        await findings_of(partial(examine, Options(path=Path("/none"), proc=proc), ctx)),
        "kernel.processes",
    )


async def test_a_readable_log_is_ok(ctx: DoctorContext, kmsg: Kmsg) -> None:
    kmsg.write(xid(), skip=4711)
    finding = await log(ctx, kmsg.path)
    assert finding.verdict is Verdict.OK
    assert finding.observed == "can be read, from record 4711 on"


async def test_an_empty_log_is_ok(ctx: DoctorContext, kmsg: Kmsg) -> None:
    finding = await log(ctx, kmsg.path)
    assert finding.verdict is Verdict.OK


async def test_the_default_path_is_looked_up_under_the_device_root(
    ctx: DoctorContext, kmsg: Kmsg
) -> None:
    there = replace(ctx, roots=replace(ctx.roots, dev=kmsg.path.parent))
    finding = await log(there, Path("/dev/kmsg"))
    assert (finding.verdict, finding.subject) == (Verdict.OK, str(kmsg.path))


async def test_a_missing_device_is_a_failure(ctx: DoctorContext, tmp_path: Path) -> None:
    finding = await log(ctx, tmp_path / "kmsg")
    is_bad(finding, "failure", "No such file", "hostPath, type CharDevice")
    assert not finding.observed.startswith(str(tmp_path))


async def test_a_device_without_permission_is_a_failure(
    ctx: DoctorContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("sources.kernel.kmsg_device.os.open", refuse)
    finding = await log(ctx, tmp_path / "kmsg")
    monkeypatch.undo()
    is_bad(finding, "failure", "Operation not permitted", "CAP_SYSLOG")


async def test_a_regular_file_is_a_failure(ctx: DoctorContext, tmp_path: Path) -> None:
    place = tmp_path / "kern.log"
    place.write_text(xid())
    is_bad(await log(ctx, place), "failure", "is a file", "/dev/kmsg of the host")


async def test_another_device_is_a_failure(ctx: DoctorContext) -> None:
    is_bad(await log(ctx, Path("/dev/zero")), "failure", "not a kernel log", "/dev/kmsg")


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="no kernel log here")
async def test_the_kernel_log_of_this_machine_is_ok(ctx: DoctorContext) -> None:
    there = replace(ctx, roots=replace(ctx.roots, dev=Path("/dev")))
    assert (await log(there, Path("/dev/kmsg"))).verdict is Verdict.OK


async def test_the_host_s_pid_namespace_is_ok(ctx: DoctorContext) -> None:
    assert (await processes(ctx)).verdict is Verdict.OK


async def test_a_container_s_pid_namespace_is_a_warning(ctx: DoctorContext) -> None:
    place = ctx.roots.proc / "self/ns/pid"
    place.unlink()
    place.symlink_to("pid:[4026532201]")
    is_bad(await processes(ctx), "warning", "shows another pid namespace", "hostPID: true")


async def test_the_host_s_procfs_may_be_mounted_elsewhere(
    ctx: DoctorContext, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "host/proc"
    is_bad(await processes(ctx, elsewhere), "warning", "cannot read", "option proc")
    (elsewhere / "1/ns").mkdir(parents=True)
    (elsewhere / "1/ns/pid").symlink_to(HOST_PID_NAMESPACE)
    assert (await processes(ctx, elsewhere)).verdict is Verdict.OK
