"""Usage of devices if podgpu's own pid namespace hides the processes."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml, Gpm, Load, Proc, Scenario, a100, h100, h100s, slices
from tests.sources.nvml.fake_procfs import OWNER
from tests.sources.nvml.fake_procfs import Proc as Procfs
from tests.sources.nvml.harness import GPU, errors, mig, running, until
from tests.sources.nvml.usage_helpers import next_usage_samples, usage_options, usage_samples, uses
from tests.support.contexts import FakeSourceContext

GIB = 1 << 30


@pytest.fixture
def outer(tmp_path: Path) -> Procfs:
    """Return the procfs of the pid namespace outside podgpu's own, with process 7 of a pod.

    The driver would report that process by another pid, or not at all.
    """
    made = Procfs(tmp_path / "proc", "4711 40")
    made.run(1, cgroup="0::/init.scope\n")
    made.run(7)
    return made


WORKING = h100s(
    1,
    processes=[Proc(7, GIB)],
    loads=[Load(7, 30)],
    gpm={1: Gpm(25)},
    values={"memory_used": GIB, "memory_reserved": 0},
)
NODES: Mapping[str, Scenario] = {
    "empty lists, utilisation by the host's pids": replace(WORKING, hides_processes=True),
    "lists by pids of another namespace": WORKING,
}


@pytest.mark.slow
@pytest.mark.parametrize("node", NODES.values(), ids=NODES.keys())
async def test_no_process_is_reported_and_busy_time_is_from_gpm(
    fake_nvml: FakeNvml, outer: Procfs, node: Scenario
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(node)
    async with running(ctx, usage_options(every=0.3, proc=outer.root)):
        await next_usage_samples(ctx, 5)
    first, second, *rest = uses(ctx, GPU[0])
    for use in (first, second, *rest):
        assert not use.listed
        assert use.processes == (), "no process gets the usage of another"
        assert use.memory_used_bytes == GIB
        assert use.energy_mj is not None
    # GPM is used only after the processes are known to be hidden, and it needs two samples.
    assert (first.busy_ns, second.busy_ns) == (None, None)
    for use in rest:
        assert use.since is not None
        assert use.busy_ns == round(0.25 * (use.at.mono_ns - use.since.mono_ns))
    assert errors(ctx) == {}
    assert fake_nvml.gpm_samples()[1] == 0


@pytest.mark.slow
async def test_busy_time_is_unknown_on_a_card_without_gpm(
    fake_nvml: FakeNvml, outer: Procfs
) -> None:
    ctx = FakeSourceContext()
    card = a100(0, processes=[Proc(7, GIB)], loads=[Load(7, 30)])
    fake_nvml.set(Scenario(gpus=[card], hides_processes=True))
    async with running(ctx, usage_options(proc=outer.root)):
        await next_usage_samples(ctx, 4)
    assert {use.busy_ns for use in uses(ctx, GPU[0])} == {None}, "unknown, not 0"
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_busy_time_of_mig_instances_is_from_gpm_as_usual(
    fake_nvml: FakeNvml, outer: Procfs
) -> None:
    ctx = FakeSourceContext()
    instances = slices(0, "3g.40gb", processes=[Proc(7, GIB)], gpm={1: Gpm(40)})
    fake_nvml.set(Scenario(gpus=[h100(0, mig=instances)], hides_processes=True))
    async with running(ctx, usage_options(every=0.3, proc=outer.root)):
        await next_usage_samples(ctx, 3)
    last = uses(ctx, mig(0, 7))[-1]
    assert (last.listed, last.processes, last.memory_used_bytes) == (False, (), GIB)
    assert last.since is not None
    assert last.busy_ns == round(0.4 * (last.at.mono_ns - last.since.mono_ns))
    gpu = uses(ctx, GPU[0])[-1]
    assert (gpu.busy_ns, gpu.listed) == (None, False)
    assert gpu.energy_mj is not None


@pytest.mark.slow
async def test_hidden_processes_are_logged_once_with_the_fix(
    fake_nvml: FakeNvml, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(h100s(2), hides_processes=True))
    async with running(ctx, usage_options(proc=tmp_path / "nowhere")):
        await next_usage_samples(ctx, 3)
    assert not any(use.listed for sample in usage_samples(ctx) for use in sample.uses)
    (message,) = [r.getMessage() for r in caplog.records if "hostPID" in r.getMessage()]
    assert f"cannot read {tmp_path}/nowhere/1/stat" in message


@pytest.mark.slow
async def test_processes_are_reported_once_the_host_s_procfs_is_mounted(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(WORKING)
    root = tmp_path / "proc"
    async with running(ctx, usage_options(every=0.3, proc=root)):
        await next_usage_samples(ctx, 4)
        assert not uses(ctx, GPU[0])[-1].listed
        procfs = Procfs(tmp_path / "made")
        procfs.run(1, cgroup="0::/init.scope\n")
        procfs.run(7)
        shutil.move(procfs.root, root)
        await until(lambda: uses(ctx, GPU[0])[-1].listed)
        await next_usage_samples(ctx, 3)
    last = uses(ctx, GPU[0])[-1]
    assert last.since is not None
    assert [one.owner for one in last.processes] == [OWNER]
    assert last.busy_ns == sum(one.busy_ns or 0 for one in last.processes), (
        "the sum of the processes again"
    )
