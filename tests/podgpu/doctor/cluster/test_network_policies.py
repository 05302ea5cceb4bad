"""The check `cluster.networkpolicy`: whether a policy limits who can reach the extender (R14)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import ApiError
from pipeline.component.findings import Finding
from pipeline.kube.sessions import Sessions
from podgpu.doctor.cluster.cluster_diagnosis import diagnose
from podgpu.doctor.cluster.extender_checks import check_policies
from podgpu.doctor.cluster.objects import Cluster
from tests.podgpu.doctor.cluster.objects import Raw, deployment
from tests.podgpu.doctor.cluster.test_extender_checks import server
from tests.podgpu.doctor.cluster.unexpected_objects import UNEXPECTED, replaced
from tests.podgpu.doctor.support import is_bad
from tests.support.examples import examples
from tests.support.kube import Collection, status

CHECK = "cluster.networkpolicy"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/gpu-system/networkpolicies"
SCHEDULER: Raw = {"from": [{"ipBlock": {"cidr": "10.0.0.0/28"}}], "ports": [{"port": 9410}]}


def policy(name: str = "extender", **spec: Any) -> Raw:
    whole = {
        "podSelector": {"matchLabels": {"app": "podgpu-extender"}},
        "policyTypes": ["Ingress"],
        "ingress": [SCHEDULER],
        **spec,
    }
    return {"metadata": {"name": name, "namespace": "gpu-system", "uid": name}, "spec": whole}


async def diagnosed(folder: Path, *policies: Raw, extender: Raw | None = None) -> Finding:
    made = server(extender or deployment())
    made.paths[POLICIES] = Collection()
    for each in policies:
        made.paths[POLICIES].put(each)
    async with made.serving():
        kubeconfig = made.kubeconfig(folder / "kubeconfig")
        found = await diagnose(Sessions().session, kubeconfig, "")
    (finding,) = [each for each in found if each.check == CHECK]
    return finding


PROTECTED: dict[str, Raw] = {
    "by its labels": policy(),
    "by all pods": policy(podSelector={}),
    "without policyTypes": policy(policyTypes=None),
    "from no one": policy(ingress=[]),
    "by an expression": policy(
        podSelector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    ),
}


@pytest.mark.parametrize("case", PROTECTED)
async def test_r14_a_policy_that_selects_the_extender_pods_is_ok(tmp_path: Path, case: str) -> None:
    finding = await diagnosed(
        tmp_path, policy("other", podSelector={"matchLabels": {"a": "b"}}), PROTECTED[case]
    )
    assert finding.verdict.value == "ok"
    assert finding.observed == "NetworkPolicy extender limits who can connect"
    assert finding.subject == "Deployment gpu-system/podgpu-extender"


OPEN: dict[str, list[Raw]] = {
    "none": [],
    "of other pods": [policy(podSelector={"matchLabels": {"app": "web"}})],
    "of what goes out": [policy(policyTypes=["Egress"])],
}


@pytest.mark.parametrize("case", OPEN)
async def test_r14_an_extender_without_a_network_policy_is_a_warning(
    tmp_path: Path, case: str
) -> None:
    finding = await diagnosed(tmp_path, *OPEN[case])
    is_bad(finding, "warning", "no NetworkPolicy selects its pods", "extender.networkPolicy.from")


@pytest.mark.parametrize("rule", [{}, {"ports": [{"port": 9410}]}, {"from": []}])
async def test_r14_a_policy_that_allows_all_connections_is_a_warning(
    tmp_path: Path, rule: Raw
) -> None:
    finding = await diagnosed(tmp_path, policy("first"), policy("wide", ingress=[SCHEDULER, rule]))
    is_bad(
        finding,
        "warning",
        "NetworkPolicy wide allows connections from everywhere",
        "extender.networkPolicy.from",
    )


@pytest.mark.parametrize("words", [["--web-config", "/w.yml"], ["--web-config=/w.yml"]])
async def test_r14_an_extender_with_a_web_config_is_skipped(
    tmp_path: Path, words: list[str]
) -> None:
    extender = deployment(container={"image": "podgpu", "args": ["extender", *words]})
    finding = await diagnosed(tmp_path, extender=extender)
    assert (finding.verdict.value, "web config" in finding.observed) == ("skipped", True)


async def test_r14_without_an_extender_or_permission_to_list_policies_it_is_skipped(
    tmp_path: Path,
) -> None:
    finding = await diagnosed(tmp_path, extender=deployment("web", container={"image": "nginx"}))
    assert finding.verdict.value == "skipped"
    made = server(deployment())
    made.refusals = {POLICIES: status(403, "Forbidden", "no")}
    async with made.serving():
        found = await diagnose(Sessions().session, made.kubeconfig(tmp_path / "kubeconfig"), "")
    (finding,) = [each for each in found if each.check == CHECK]
    assert finding.verdict.value == "skipped"
    assert "cannot be listed" in finding.observed


class FixedResponse:
    """An API server that responds to a list of policies with the same body or error."""

    def __init__(self, body: bytes | ApiError) -> None:
        self.body = body

    async def get(self, _: str, __: object) -> bytes:
        if isinstance(self.body, ApiError):
            raise self.body
        return self.body


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8), UNEXPECTED, st.booleans())
async def test_an_unexpected_object_does_not_break_a_check(
    at: Sequence[int], unexpected: object, in_policy: bool
) -> None:
    broken = replaced(policy() if in_policy else deployment(), list(at), unexpected)
    known = deployment() if in_policy else broken
    whole = [{**(known if isinstance(known, dict) else {}), "kind": "Deployment"}]
    body = orjson.dumps({"items": [broken if in_policy else policy()]}, default=str)
    found = await check_policies(FixedResponse(body), Cluster(deployments=whole))  # type: ignore[arg-type]
    assert {each.check for each in found} == {CHECK}
