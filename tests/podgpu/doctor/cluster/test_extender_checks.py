"""`cluster.extender`, provoked on a server that says what service accounts may do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import ApiError
from pipeline.component.findings import Finding
from pipeline.diagnostics.api_permissions import OTHERS
from pipeline.kube.sessions import Sessions
from podgpu.doctor.cluster.cluster_checks import diagnose
from podgpu.doctor.cluster.extender_checks import RIGHTS, check_extenders, is_extender
from podgpu.doctor.cluster.objects import Cluster
from tests.e2e.documented import objects, rules
from tests.podgpu.doctor.cluster.objects import Raw, deployment
from tests.podgpu.doctor.cluster.odd import ODD, replaced
from tests.podgpu.doctor.support import is_bad, of
from tests.support.kube import ApiServer, Collection, status

DAEMONSETS = "/apis/apps/v1/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/deployments"
CHART = {"app.kubernetes.io/name": "podgpu", "app.kubernetes.io/component": "extender"}
WHO = "the service account gpu-system/podgpu-extender"


def server(*deployments: Raw) -> ApiServer:
    made = Collection()
    for each in deployments:
        made.put({key: value for key, value in each.items() if key != "kind"})
    return ApiServer({DAEMONSETS: Collection(), DEPLOYMENTS: made})


async def looked(folder: Path, made: ApiServer, namespace: str = "") -> list[Finding]:
    async with made.serving():
        kubeconfig = made.kubeconfig(folder / "kubeconfig")
        found = await diagnose(Sessions().session, kubeconfig, namespace)
    return [each for each in found if each.check == "cluster.extender"]


async def test_one_that_has_its_rights_and_is_ready_is_well(tmp_path: Path) -> None:
    made = server(deployment())
    found = of(await looked(tmp_path, made), "cluster.extender")
    assert found.verdict.value == "ok"
    assert found.subject == "Deployment gpu-system/podgpu-extender"
    assert found.observed == f"ready; {WHO} may list nodes, watch nodes"
    assert [path for path, _ in made.created] == [OTHERS, OTHERS]
    asked = [body["spec"] for _, body in made.created]
    assert [each["resourceAttributes"] for each in asked] == [
        {"verb": "list", "resource": "nodes"},
        {"verb": "watch", "resource": "nodes"},
    ]
    assert {each["user"] for each in asked} == {"system:serviceaccount:gpu-system:podgpu-extender"}
    assert asked[0]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:gpu-system",
        "system:authenticated",
    ]


@pytest.mark.parametrize("right", RIGHTS, ids=str)
async def test_a_verb_that_is_missing_is_named(tmp_path: Path, right: Any) -> None:
    made = server(deployment())
    made.unallowed = {(right.verb, right.resource)}
    rule = f'give {WHO} a ClusterRole with apiGroups [""], resources ["nodes"], '
    found = of(await looked(tmp_path, made), "cluster.extender")
    is_bad(found, "failure", f"{WHO} may not {right.verb} nodes", f"{rule}verbs [{right.verb}]")


async def test_each_verb_that_is_missing_is_a_finding_before_the_pods_that_wait_for_it(
    tmp_path: Path,
) -> None:
    made = server(deployment(ready=0))
    made.unallowed = {("list", "nodes"), ("watch", "nodes")}
    found = await looked(tmp_path, made)
    assert [each.observed for each in found] == [
        f"{WHO} may not list nodes",
        f"{WHO} may not watch nodes",
        "0 of 2 pods are ready",
    ]


PODS: list[tuple[Raw, str, str, str]] = [
    ({"ready": 1}, "warning", "1 of 2 pods are ready", "kubectl -n gpu-system describe pods"),
    ({"ready": 0}, "failure", "0 of 2 pods are ready", "and their logs"),
    ({"ready": None, "replicas": None}, "failure", "0 of 1 pods are ready", "and their logs"),
    ({"ready": None, "replicas": 0}, "warning", "wants no pods", "set its replicas to 1"),
]


@pytest.mark.parametrize(("more", "verdict", "saw", "repair"), PODS)
async def test_pods_that_are_not_ready(
    tmp_path: Path, more: Raw, verdict: str, saw: str, repair: str
) -> None:
    found = of(await looked(tmp_path, server(deployment(**more))), "cluster.extender")
    is_bad(found, verdict, saw, repair)


async def test_who_may_not_ask_for_others_is_reported_how_to(tmp_path: Path) -> None:
    made = server(deployment())
    made.forbidden = {("create", OTHERS)}
    found = of(await looked(tmp_path, made), "cluster.extender")
    assert found.verdict.value == "skipped"
    assert "may not create subjectaccessreviews" in found.observed
    assert "--as system:serviceaccount:gpu-system:podgpu-extender" in found.observed


async def test_credentials_of_its_own_are_not_the_account_s(tmp_path: Path) -> None:
    runs = {"image": "podgpu", "args": ["extender", "--kubeconfig=/etc/kubeconfig"]}
    made = server(deployment(container=runs))
    found = of(await looked(tmp_path, made), "cluster.extender")
    assert found.verdict.value == "skipped"
    assert "those of its --kubeconfig" in found.observed
    assert made.created == []


async def test_without_an_account_it_has_the_namespace_s(tmp_path: Path) -> None:
    made = server(deployment(serviceAccountName=None))
    await looked(tmp_path, made)
    users = {body["spec"]["user"] for _, body in made.created}
    assert users == {"system:serviceaccount:gpu-system:default"}


async def test_where_there_is_none_or_they_cannot_be_listed_no_one_misses_it(
    tmp_path: Path,
) -> None:
    other = deployment("web", container={"image": "nginx"})
    assert of(await looked(tmp_path, server(other)), "cluster.extender").observed == (
        "none runs podgpu extender"
    )
    elsewhere = of(await looked(tmp_path, server(deployment()), "mon"), "cluster.extender")
    assert elsewhere.verdict.value == "skipped"
    made = server(deployment())
    made.refusals = {DEPLOYMENTS: status(403, "Forbidden", "no")}
    refused = of(await looked(tmp_path, made), "cluster.extender")
    assert (refused.verdict.value, refused.observed) == ("skipped", "they cannot be listed")


RUNS: list[tuple[Raw, dict[str, str], bool]] = [
    ({"image": "r.example:5000/gpu/podgpu:1@sha256:0", "args": ["extender"]}, {}, True),
    ({"image": "podgpu", "command": ["podgpu", "extender"]}, {}, True),
    ({"image": "mirror/gpu-tool", "args": ["extender", "--listen", ":9410"]}, CHART, True),
    ({"image": "mirror/gpu-tool", "args": ["extender"]}, {}, False),
    ({"image": "podgpu", "args": ["run"]}, {}, False),
    ({"image": "podgpu"}, {}, False),
    ({"image": "podgpu", "args": "extender"}, {}, False),
]


@pytest.mark.parametrize(("container", "labels", "is_one"), RUNS)
def test_an_extender_is_known_by_its_words_and_by_image_or_labels(
    container: Raw, labels: dict[str, str], is_one: bool
) -> None:
    assert is_extender(deployment(container=container, labels=labels)) is is_one


def test_the_documented_one_is_known_and_its_rules_are_what_is_asked_for() -> None:
    (extender,) = objects("extender.md", "Deployment")
    assert is_extender(extender)
    given = {
        (verb, resource, group)
        for rule in rules("extender.md")
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }
    assert given == {(right.verb, right.resource, right.group) for right in RIGHTS}


class Answers:
    """Says something odd to each access review."""

    def __init__(self, body: bytes | ApiError) -> None:
        self.body = body

    async def create(self, _: str, __: object) -> bytes:
        if isinstance(self.body, ApiError):
            raise self.body
        return self.body


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8), ODD, st.sampled_from([b"{}", b"[1]", b"<", None]))
async def test_an_odd_object_or_answer_costs_no_check(
    at: Sequence[int], odd: object, body: bytes | None
) -> None:
    spoilt = replaced(deployment(), list(at), odd)
    whole = [{**(spoilt if isinstance(spoilt, dict) else {}), "kind": "Deployment"}]
    api: Any = Answers(ApiError("away") if body is None else body)
    found = await check_extenders(api, Cluster(deployments=whole))
    assert {each.check for each in found} == {"cluster.extender"}
