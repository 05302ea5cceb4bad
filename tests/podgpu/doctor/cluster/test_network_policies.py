"""`cluster.networkpolicy`: whether others are kept away from the scheduler extender (R14)."""

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
from podgpu.doctor.cluster.cluster_checks import diagnose
from podgpu.doctor.cluster.network_policies import check_policies
from podgpu.doctor.cluster.objects import Cluster
from tests.podgpu.doctor.cluster.objects import Raw, deployment
from tests.podgpu.doctor.cluster.odd import ODD, replaced
from tests.podgpu.doctor.cluster.test_extender_checks import server
from tests.podgpu.doctor.support import is_bad
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


async def looked(folder: Path, *policies: Raw, one: Raw | None = None) -> Finding:
    made = server(one or deployment())
    made.paths[POLICIES] = Collection()
    for each in policies:
        made.paths[POLICIES].put(each)
    async with made.serving():
        kubeconfig = made.kubeconfig(folder / "kubeconfig")
        found = await diagnose(Sessions().session, kubeconfig, "")
    (given_out,) = [each for each in found if each.check == CHECK]
    return given_out


KEPT: dict[str, Raw] = {
    "by its labels": policy(),
    "by all pods": policy(podSelector={}),
    "without policyTypes": policy(policyTypes=None),
    "from nobody": policy(ingress=[]),
    "by an expression": policy(
        podSelector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    ),
}


@pytest.mark.parametrize("case", KEPT)
async def test_r14_a_policy_that_selects_its_pods_is_well(tmp_path: Path, case: str) -> None:
    given_out = await looked(
        tmp_path, policy("other", podSelector={"matchLabels": {"a": "b"}}), KEPT[case]
    )
    assert given_out.verdict.value == "ok"
    assert given_out.observed == "NetworkPolicy extender limits who can connect"
    assert given_out.subject == "Deployment gpu-system/podgpu-extender"


OPEN: dict[str, list[Raw]] = {
    "none": [],
    "of other pods": [policy(podSelector={"matchLabels": {"app": "web"}})],
    "of what goes out": [policy(policyTypes=["Egress"])],
}


@pytest.mark.parametrize("case", OPEN)
async def test_r14_without_one_that_is_said(tmp_path: Path, case: str) -> None:
    given_out = await looked(tmp_path, *OPEN[case])
    is_bad(given_out, "warning", "no NetworkPolicy selects its pods", "extender.networkPolicy.from")


@pytest.mark.parametrize("rule", [{}, {"ports": [{"port": 9410}]}, {"from": []}])
async def test_r14_one_that_lets_everybody_in_is_none(tmp_path: Path, rule: Raw) -> None:
    given_out = await looked(tmp_path, policy("first"), policy("wide", ingress=[SCHEDULER, rule]))
    is_bad(
        given_out,
        "warning",
        "NetworkPolicy wide allows connections from everywhere",
        "extender.networkPolicy.from",
    )


@pytest.mark.parametrize("words", [["--web-config", "/w.yml"], ["--web-config=/w.yml"]])
async def test_r14_with_a_web_config_none_is_needed(tmp_path: Path, words: list[str]) -> None:
    one = deployment(container={"image": "podgpu", "args": ["extender", *words]})
    given_out = await looked(tmp_path, one=one)
    assert (given_out.verdict.value, "web config" in given_out.observed) == ("skipped", True)


async def test_r14_without_an_extender_or_the_right_to_list_it_is_skipped(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, one=deployment("web", container={"image": "nginx"}))
    assert given_out.verdict.value == "skipped"
    made = server(deployment())
    made.refusals = {POLICIES: status(403, "Forbidden", "no")}
    async with made.serving():
        found = await diagnose(Sessions().session, made.kubeconfig(tmp_path / "kubeconfig"), "")
    (given_out,) = [each for each in found if each.check == CHECK]
    assert given_out.verdict.value == "skipped"
    assert "cannot be listed" in given_out.observed


class Answers:
    """Says something odd of the policies."""

    def __init__(self, body: bytes | ApiError) -> None:
        self.body = body

    async def get(self, _: str, __: object) -> bytes:
        if isinstance(self.body, ApiError):
            raise self.body
        return self.body


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8), ODD, st.booleans())
async def test_an_odd_object_costs_no_check(
    at: Sequence[int], odd: object, of_policy: bool
) -> None:
    spoilt = replaced(policy() if of_policy else deployment(), list(at), odd)
    known = deployment() if of_policy else spoilt
    whole = [{**(known if isinstance(known, dict) else {}), "kind": "Deployment"}]
    body = orjson.dumps({"items": [spoilt if of_policy else policy()]}, default=str)
    found = await check_policies(Answers(body), Cluster(deployments=whole))  # type: ignore[arg-type]
    assert {each.check for each in found} == {CHECK}
