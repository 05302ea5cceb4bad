"""A node on which all is well, looked at as a whole, and again with one thing wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import Examination, of_components, run
from pipeline.diagnostics.context import DoctorContext
from podgpu.doctor.node_checks import diagnose
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml
from tests.podgpu.doctor.support import config, context, free_port, verdicts
from tests.sources.checkpoint.files import checkpoint, entry
from tests.sources.pods.raws import raw_pod
from tests.support.kube import ApiServer, Collection

__all__ = ["fake_nvml"]

PODS, SLICES = "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceslices"
CONFIG: Final = """\
node: node-1
sources:
  gpus: {{kind: nvml}}
  kubelet: {{kind: podresources, sockets: [{folder}/kubelet.sock]}}
  pods: {{kind: pods, kubeconfig: {folder}/kubeconfig}}
  checkpoint: {{kind: checkpoint, path: {folder}/checkpoint}}
sinks:
  metrics: {{kind: prometheus, listen: "127.0.0.1:{port}"}}
  lines: {{kind: jsonl, path: {folder}/gpu.jsonl, queue: {{path: {folder}/queue}}}}
"""


@asynccontextmanager
async def node(folder: Path) -> AsyncIterator[DoctorContext]:
    server = ApiServer({PODS: Collection(), SLICES: Collection()})
    server.paths[PODS].put(raw_pod())
    (folder / "checkpoint").write_bytes(checkpoint(entry()))
    async with server.serving(), FakeKubelet(folder / "kubelet.sock") as kubelet:
        kubelet.offered = {"nvidia.com/gpu": ["GPU-0"]}
        server.kubeconfig(folder / "kubeconfig")
        yield context(folder, CONFIG.format(folder=folder, port=await free_port()))


async def test_a_healthy_node_is_well_in_every_check(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    async with node(tmp_path) as ctx:
        found = await diagnose(ctx)
    given_out = verdicts(found)
    assert [finding for finding in found if finding.fix] == []
    assert {check for check, verdict in given_out.items() if verdict == "skipped"} == set()
    assert len(given_out) == 23, sorted(given_out)
    components = {finding.component for finding in found}
    assert components == {
        "", "source gpus", "source kubelet", "source pods", "source checkpoint", "sink lines",
    }  # fmt: skip


SPOILERS = {
    "podresources.socket": "kubelet.sock",
    "checkpoint.file": "checkpoint",
    "pods.server": "kubeconfig",
}


@pytest.mark.parametrize("check", SPOILERS)
async def test_one_thing_that_is_wrong_leaves_all_else(
    fake_nvml: FakeNvml, tmp_path: Path, check: str
) -> None:
    async with node(tmp_path) as ctx:
        before = verdicts(await diagnose(ctx))
        (tmp_path / SPOILERS[check]).unlink()
        after = verdicts(await diagnose(ctx))
    assert after[check] == "failure"
    family = check.partition(".")[0]
    others = {each for each in before if each.partition(".")[0] not in {family, "clock"}}
    assert {each: after[each] for each in others} == {each: before[each] for each in others}


async def _reported(part: Verdict | type[Exception]) -> list[Finding]:
    if isinstance(part, Verdict):
        return [Finding("a", part, "b", "c")]
    raise part("x")


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.sampled_from(Verdict),
            st.sampled_from([OSError, ValueError, AssertionError, KeyError]),
        ),
        max_size=6,
    )
)
def test_no_check_costs_another_its_finding(
    parts: list[Verdict | type[Exception]],
) -> None:
    made = [Examination(str(at), partial(_reported, part)) for at, part in enumerate(parts)]
    found = asyncio.run(run(made, 5))
    assert len(found) == len(parts)
    for part, finding in zip(parts, found, strict=True):
        expected = part if isinstance(part, Verdict) else Verdict.FAILURE
        assert finding.verdict is expected


def test_a_component_without_a_doctor_is_passed_over() -> None:
    made = config("sinks: {m: {kind: prometheus}}\n")
    names = [each.name for each in of_components(made, DoctorContext(made))]
    assert names == ["source gpus"]
