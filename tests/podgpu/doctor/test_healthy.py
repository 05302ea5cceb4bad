"""All checks on a healthy node, and again with one fault."""

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
from tests.sources.checkpoint.checkpoints import checkpoint, entry
from tests.sources.pods.pod_objects import raw_pod
from tests.support.examples import examples
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
        yield context(folder, CONFIG.format(folder=folder, port=free_port()))


async def test_all_checks_of_a_healthy_node_are_ok(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    async with node(tmp_path) as ctx:
        found = await diagnose(ctx)
    found_verdicts = verdicts(found)
    assert [finding for finding in found if finding.fix] == []
    assert {check for check, verdict in found_verdicts.items() if verdict == "skipped"} == set()
    assert len(found_verdicts) == 23, sorted(found_verdicts)
    components = {finding.component for finding in found}
    assert components == {
        "", "source gpus", "source kubelet", "source pods", "source checkpoint", "sink lines",
    }  # fmt: skip


FAULTS = {
    "podresources.socket": "kubelet.sock",
    "checkpoint.file": "checkpoint",
    "pods.server": "kubeconfig",
}


@pytest.mark.slow
@pytest.mark.parametrize("check", FAULTS)
async def test_one_fault_leaves_the_findings_of_other_checks_unchanged(
    fake_nvml: FakeNvml, tmp_path: Path, check: str
) -> None:
    async with node(tmp_path) as ctx:
        before = verdicts(await diagnose(ctx))
        (tmp_path / FAULTS[check]).unlink()
        after = verdicts(await diagnose(ctx))
    assert after[check] == "failure"
    family = check.partition(".")[0]
    others = {each for each in before if each.partition(".")[0] not in {family, "clock"}}
    assert {each: after[each] for each in others} == {each: before[each] for each in others}


async def _finding_or_error(part: Verdict | type[Exception]) -> list[Finding]:
    if isinstance(part, Verdict):
        return [Finding("a", part, "b", "c")]
    raise part("x")


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.sampled_from(Verdict),
            st.sampled_from([OSError, ValueError, AssertionError, KeyError]),
        ),
        max_size=6,
    )
)
def test_a_check_that_raises_an_error_does_not_prevent_other_findings(
    parts: list[Verdict | type[Exception]],
) -> None:
    made = [Examination(str(at), partial(_finding_or_error, part)) for at, part in enumerate(parts)]
    found = asyncio.run(run(made, 5))
    assert len(found) == len(parts)
    for part, finding in zip(parts, found, strict=True):
        expected = part if isinstance(part, Verdict) else Verdict.FAILURE
        assert finding.verdict is expected


def test_a_component_without_checks_is_left_out() -> None:
    made = config("sinks: {m: {kind: prometheus}}\n")
    names = [each.name for each in of_components(made, DoctorContext(made))]
    assert names == ["source gpus"]
