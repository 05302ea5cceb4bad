"""What the doctor says of the kernel's log, each fault provoked."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
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
    return of(await examine(Options(path=path), ctx), "kernel.log")


async def processes(ctx: DoctorContext, proc: Path = Path("/proc")) -> Finding:
    return of(await examine(Options(path=Path("/none"), proc=proc), ctx), "kernel.processes")


async def test_a_log_that_can_be_read_is_well(ctx: DoctorContext, kmsg: Kmsg) -> None:
    kmsg.says(xid(), skip=4711)
    given_out = await log(ctx, kmsg.path)
    assert given_out.verdict is Verdict.OK
    assert given_out.observed == "can be read, from record 4711 on"


async def test_one_in_which_nothing_stands_is_well(ctx: DoctorContext, kmsg: Kmsg) -> None:
    given_out = await log(ctx, kmsg.path)
    assert given_out.verdict is Verdict.OK


async def test_the_usual_place_is_that_of_the_machine_s_devices(
    ctx: DoctorContext, kmsg: Kmsg
) -> None:
    there = replace(ctx, roots=replace(ctx.roots, dev=kmsg.path.parent))
    given_out = await log(there, Path("/dev/kmsg"))
    assert (given_out.verdict, given_out.subject) == (Verdict.OK, str(kmsg.path))


async def test_no_such_device(ctx: DoctorContext, tmp_path: Path) -> None:
    given_out = await log(ctx, tmp_path / "kmsg")
    is_bad(given_out, "failure", "No such file", "hostPath, type CharDevice")
    assert not given_out.observed.startswith(str(tmp_path))


async def test_one_that_may_not_be_opened(
    ctx: DoctorContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("sources.kernel.kmsg_device.os.open", refuse)
    given_out = await log(ctx, tmp_path / "kmsg")
    monkeypatch.undo()
    is_bad(given_out, "failure", "Operation not permitted", "CAP_SYSLOG")


async def test_a_file(ctx: DoctorContext, tmp_path: Path) -> None:
    place = tmp_path / "kern.log"
    place.write_text(xid())
    is_bad(await log(ctx, place), "failure", "is a file", "/dev/kmsg of the host")


async def test_another_device(ctx: DoctorContext) -> None:
    is_bad(await log(ctx, Path("/dev/zero")), "failure", "not a kernel log", "/dev/kmsg")


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="no kernel log here")
async def test_this_machine_s_own(ctx: DoctorContext) -> None:
    there = replace(ctx, roots=replace(ctx.roots, dev=Path("/dev")))
    assert (await log(there, Path("/dev/kmsg"))).verdict is Verdict.OK


async def test_processes_of_the_host(ctx: DoctorContext) -> None:
    assert (await processes(ctx)).verdict is Verdict.OK


async def test_processes_of_a_container(ctx: DoctorContext) -> None:
    place = ctx.roots.proc / "self/ns/pid"
    place.unlink()
    place.symlink_to("pid:[4026532201]")
    is_bad(await processes(ctx), "warning", "shows another pid namespace", "hostPID: true")


async def test_processes_of_the_host_that_are_mounted_elsewhere(
    ctx: DoctorContext, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "host/proc"
    is_bad(await processes(ctx, elsewhere), "warning", "cannot read", "option proc")
    (elsewhere / "1/ns").mkdir(parents=True)
    (elsewhere / "1/ns/pid").symlink_to(HOST_PID_NAMESPACE)
    assert (await processes(ctx, elsewhere)).verdict is Verdict.OK
