"""What the doctor says of the processes that podgpu can see, and of whose they are."""

import shutil
from pathlib import Path

from pipeline.component.findings import Verdict
from pipeline.diagnostics.context import DoctorContext
from sources.nvml.options import Options
from tests.fakes.nvml import FakeNvml
from tests.podgpu.doctor.support import context, of
from tests.sources.nvml.doctoring import looked
from tests.sources.nvml.fake_procfs import Proc


def in_a_pod(ctx: DoctorContext) -> None:
    """Give the machine a pid namespace whose first process is this one's neighbour."""
    proc = ctx.roots.proc
    link = proc / "self/ns/pid"
    link.unlink()
    link.symlink_to("pid:[4026532201]")
    for name in ("self", "1"):
        (proc / name).mkdir(exist_ok=True)
        (proc / name / "cgroup").write_text("0::/\n")


async def test_a_pid_namespace_of_its_own_hides_processes(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = context(tmp_path)
    in_a_pod(ctx)
    given_out = of(await looked(ctx), "nvml.processes")
    assert given_out.verdict is Verdict.SKIPPED, "so it is on every node of the chart's default"
    assert "podgpu's own pid namespace" in given_out.observed
    assert "hostPID: true" in given_out.observed
    assert "attributes usage by holder only" in given_out.observed
    unasked = of(await looked(ctx, Options(processes=False)), "nvml.processes")
    assert unasked.verdict is Verdict.SKIPPED
    assert unasked.observed == "processes: false"


async def test_the_hosts_procfs_elsewhere_helps_who_shares_its_namespace(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = context(tmp_path)
    in_a_pod(ctx)
    asked = Options(proc=tmp_path / "host")
    given_out = of(await looked(ctx, asked), "nvml.processes")
    assert given_out.verdict is Verdict.SKIPPED
    assert f"cannot read {asked.proc}/1/stat" in given_out.observed
    for numbers, verdict in (("4711 40", Verdict.SKIPPED), ("40", Verdict.OK)):
        shutil.rmtree(asked.proc, ignore_errors=True)
        Proc(asked.proc, numbers).run(1, cgroup="0::/init.scope\n")
        given_out = of(await looked(ctx, asked), "nvml.processes")
        assert (given_out.verdict, given_out.subject) == (verdict, str(asked.proc))
        assert ("a pid namespace other" in given_out.observed) is (verdict is Verdict.SKIPPED)
