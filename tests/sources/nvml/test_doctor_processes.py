"""The finding of `podgpu doctor` about processes and their owners."""

import shutil
from pathlib import Path

from pipeline.component.findings import Verdict
from pipeline.diagnostics.context import DoctorContext
from sources.nvml.options import Options
from tests.fakes.nvml import FakeNvml
from tests.podgpu.doctor.support import context, of
from tests.sources.nvml.doctor_helpers import examined
from tests.sources.nvml.fake_procfs import Proc


def in_a_pod(ctx: DoctorContext) -> None:
    """Change the machine's procfs to a pid namespace whose first process is in podgpu's pod."""
    proc = ctx.roots.proc
    link = proc / "self/ns/pid"
    link.unlink()
    link.symlink_to("pid:[4026532201]")
    for name in ("self", "1"):
        (proc / name).mkdir(exist_ok=True)
        (proc / name / "cgroup").write_text("0::/\n")


async def test_podgpu_s_own_pid_namespace_hides_processes(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = context(tmp_path)
    in_a_pod(ctx)
    finding = of(await examined(ctx), "nvml.processes")
    assert finding.verdict is Verdict.SKIPPED, "the default of the chart"
    assert "podgpu's own pid namespace" in finding.observed
    assert "hostPID: true" in finding.observed
    assert "attributes usage by holder only" in finding.observed
    disabled = of(await examined(ctx, Options(processes=False)), "nvml.processes")
    assert disabled.verdict is Verdict.SKIPPED
    assert disabled.observed == "processes: false"


async def test_a_configured_procfs_of_the_own_pid_namespace_is_ok(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = context(tmp_path)
    in_a_pod(ctx)
    configured = Options(proc=tmp_path / "host")
    finding = of(await examined(ctx, configured), "nvml.processes")
    assert finding.verdict is Verdict.SKIPPED
    assert f"cannot read {configured.proc}/1/stat" in finding.observed
    for numbers, verdict in (("4711 40", Verdict.SKIPPED), ("40", Verdict.OK)):
        shutil.rmtree(configured.proc, ignore_errors=True)
        Proc(configured.proc, numbers).run(1, cgroup="0::/init.scope\n")
        finding = of(await examined(ctx, configured), "nvml.processes")
        assert (finding.verdict, finding.subject) == (verdict, str(configured.proc))
        assert ("a pid namespace other" in finding.observed) is (verdict is Verdict.SKIPPED)
