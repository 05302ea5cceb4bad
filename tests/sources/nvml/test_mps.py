"""T4: an MPS server and its clients as the driver reports them."""

from pathlib import Path

import pytest

from sources.nvml.process_owners import MPS_SERVER
from tests.fakes.nvml import FakeNvml, Load, Proc, h100s
from tests.sources.nvml.fake_procfs import Proc as Procfs
from tests.sources.nvml.harness import GPU, errors, running
from tests.sources.nvml.usage_helpers import next_usage_samples, usage_options, uses
from tests.support.contexts import FakeSourceContext

SERVER, CLIENTS = 50, (51, 52, 53)


@pytest.mark.slow
async def test_t4_the_busy_time_of_an_mps_server_is_unattributed(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    ctx, proc = FakeSourceContext(), Procfs(tmp_path / "proc")
    proc.run(1, cgroup="0::/init.scope\n")
    proc.run(SERVER, name=MPS_SERVER)
    for pid in CLIENTS:
        proc.run(pid)
    # nvidia-smi shows them as M+C: they are in both lists.
    listed = [Proc(pid, kind=kind) for pid in CLIENTS for kind in ("compute", "mps")]
    fake_nvml.set(h100s(1, processes=[Proc(SERVER), *listed], loads=[Load(SERVER, 100)]))
    async with running(ctx, usage_options(proc=proc.root)):
        await next_usage_samples(ctx, 6)
    reported = uses(ctx, GPU[0])[1:]
    assert all(use.mps for use in reported)
    assert sum(use.busy_ns or 0 for use in reported) > 0
    for use in reported:
        assert {one.pid: one.busy_ns for one in use.processes} == dict.fromkeys((SERVER, *CLIENTS))
        assert {one.kind for one in use.processes if one.pid in CLIENTS} == {"mps"}
    assert errors(ctx) == {}
