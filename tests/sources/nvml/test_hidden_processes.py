"""What is told of devices where the driver hides processes: in a pid namespace of one's own."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml, Gpm, Load, Proc, Scenario, a100, h100, h100s, slices
from tests.sources.nvml.harness import GPU, errors, mig, running, until
from tests.sources.nvml.looks import looking, looks, next_looks, uses
from tests.sources.nvml.fake_procfs import OWNER
from tests.sources.nvml.fake_procfs import Proc as Procfs
from tests.support.contexts import FakeSourceContext

GIB = 1 << 30


@pytest.fixture
def around(tmp_path: Path) -> Procfs:
    """The procfs of a pid namespace around podgpu's own: there is a process 7, and it is a pod's.

    The driver would call that one by another number, or not at all.
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
SEEN: Mapping[str, Scenario] = {
    "no lists, and utilisation by the host's numbers": replace(WORKING, hides_processes=True),
    "lists too, by numbers that mean others there": WORKING,
}


@pytest.mark.parametrize("node", SEEN.values(), ids=SEEN.keys())
async def test_no_list_is_reported_and_the_device_is_reported_by_its_counters(
    fake_nvml: FakeNvml, around: Procfs, node: Scenario
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(node)
    async with running(ctx, looking(every=0.3, proc=around.root)):
        await next_looks(ctx, 5)
    first, second, *rest = uses(ctx, GPU[0])
    for use in (first, second, *rest):
        assert not use.listed
        assert use.processes == (), "not one of whom is said what another did"
        assert use.memory_used_bytes == GIB
        assert use.energy_mj is not None
    # Until it is known that they are hidden nobody asks the counters, which need two samples.
    assert (first.busy_ns, second.busy_ns) == (None, None)
    for use in rest:
        assert use.since is not None
        assert use.busy_ns == round(0.25 * (use.at.mono_ns - use.since.mono_ns))
    assert errors(ctx) == {}
    assert fake_nvml.gpm_samples()[1] == 0


async def test_a_card_without_counters_was_busy_for_who_knows_how_long(
    fake_nvml: FakeNvml, around: Procfs
) -> None:
    ctx = FakeSourceContext()
    card = a100(0, processes=[Proc(7, GIB)], loads=[Load(7, 30)])
    fake_nvml.set(Scenario(gpus=[card], hides_processes=True))
    async with running(ctx, looking(proc=around.root)):
        await next_looks(ctx, 4)
    assert {use.busy_ns for use in uses(ctx, GPU[0])} == {None}, "which isn't 0"
    assert errors(ctx) == {}


async def test_instances_are_as_busy_as_ever(fake_nvml: FakeNvml, around: Procfs) -> None:
    ctx = FakeSourceContext()
    cut = slices(0, "3g.40gb", processes=[Proc(7, GIB)], gpm={1: Gpm(40)})
    fake_nvml.set(Scenario(gpus=[h100(0, mig=cut)], hides_processes=True))
    async with running(ctx, looking(every=0.3, proc=around.root)):
        await next_looks(ctx, 3)
    last = uses(ctx, mig(0, 7))[-1]
    assert (last.listed, last.processes, last.memory_used_bytes) == (False, (), GIB)
    assert last.since is not None
    assert last.busy_ns == round(0.4 * (last.at.mono_ns - last.since.mono_ns))
    gpu = uses(ctx, GPU[0])[-1]
    assert (gpu.busy_ns, gpu.listed) == (None, False)
    assert gpu.energy_mj is not None


async def test_it_is_said_once_with_what_helps(
    fake_nvml: FakeNvml, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(h100s(2), hides_processes=True))
    async with running(ctx, looking(proc=tmp_path / "nowhere")):
        await next_looks(ctx, 3)
    assert not any(use.listed for look in looks(ctx) for use in look.uses)
    (said,) = [r.getMessage() for r in caplog.records if "hostPID" in r.getMessage()]
    assert f"cannot read {tmp_path}/nowhere/1/stat" in said


async def test_who_gets_to_see_them_reports_of_them_from_then_on(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(WORKING)
    root = tmp_path / "proc"
    async with running(ctx, looking(every=0.3, proc=root)):
        await next_looks(ctx, 4)
        assert not uses(ctx, GPU[0])[-1].listed
        made = Procfs(tmp_path / "made")
        made.run(1, cgroup="0::/init.scope\n")
        made.run(7)
        shutil.move(made.root, root)
        await until(lambda: uses(ctx, GPU[0])[-1].listed)
        await next_looks(ctx, 3)
    last = uses(ctx, GPU[0])[-1]
    assert last.since is not None
    assert [one.owner for one in last.processes] == [OWNER]
    assert last.busy_ns == sum(one.busy_ns or 0 for one in last.processes), "its own account again"
