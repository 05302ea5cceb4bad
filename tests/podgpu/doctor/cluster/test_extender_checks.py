"""The check `cluster.extender`, with a server that answers access reviews."""

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
from podgpu.doctor.cluster.cluster_diagnosis import diagnose
from podgpu.doctor.cluster.extender_checks import RIGHTS, check_extenders, is_extender
from podgpu.doctor.cluster.objects import Cluster
from tests.e2e.documented import objects, rules
from tests.podgpu.doctor.cluster.objects import Raw, deployment
from tests.podgpu.doctor.cluster.unexpected_objects import UNEXPECTED, replaced
from tests.podgpu.doctor.support import is_bad, of
from tests.support.examples import examples
from tests.support.kube import ApiServer, Collection, status

DAEMONSETS = "/apis/apps/v1/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/deployments"
CHART = {"app.kubernetes.io/name": "podgpu", "app.kubernetes.io/component": "extender"}
ACCOUNT = "the service account gpu-system/podgpu-extender"


def server(*deployments: Raw) -> ApiServer:
    made = Collection()
    for each in deployments:
        made.put({key: value for key, value in each.items() if key != "kind"})
    return ApiServer({DAEMONSETS: Collection(), DEPLOYMENTS: made})


async def diagnosed(folder: Path, made: ApiServer, namespace: str = "") -> list[Finding]:
    async with made.serving():
        kubeconfig = made.kubeconfig(folder / "kubeconfig")
        found = await diagnose(Sessions().session, kubeconfig, namespace)
    return [each for each in found if each.check == "cluster.extender"]


async def test_a_ready_extender_with_its_permissions_is_ok(tmp_path: Path) -> None:
    made = server(deployment())
    found = of(await diagnosed(tmp_path, made), "cluster.extender")
    assert found.verdict.value == "ok"
    assert found.subject == "Deployment gpu-system/podgpu-extender"
    assert found.observed == f"ready; {ACCOUNT} may list nodes, watch nodes"
    assert [path for path, _ in made.created] == [OTHERS, OTHERS]
    reviews = [body["spec"] for _, body in made.created]
    assert [each["resourceAttributes"] for each in reviews] == [
        {"verb": "list", "resource": "nodes"},
        {"verb": "watch", "resource": "nodes"},
    ]
    assert {each["user"] for each in reviews} == {
        "system:serviceaccount:gpu-system:podgpu-extender"
    }
    assert reviews[0]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:gpu-system",
        "system:authenticated",
    ]


@pytest.mark.parametrize("right", RIGHTS, ids=str)
async def test_a_missing_verb_is_named(tmp_path: Path, right: Any) -> None:
    made = server(deployment())
    made.unallowed = {(right.verb, right.resource)}
    rule = f'give {ACCOUNT} a ClusterRole with apiGroups [""], resources ["nodes"], '
    found = of(await diagnosed(tmp_path, made), "cluster.extender")
    is_bad(found, "failure", f"{ACCOUNT} may not {right.verb} nodes", f"{rule}verbs [{right.verb}]")


async def test_each_missing_verb_is_a_finding_before_the_pods_that_are_not_ready(
    tmp_path: Path,
) -> None:
    made = server(deployment(ready=0))
    made.unallowed = {("list", "nodes"), ("watch", "nodes")}
    found = await diagnosed(tmp_path, made)
    assert [each.observed for each in found] == [
        f"{ACCOUNT} may not list nodes",
        f"{ACCOUNT} may not watch nodes",
        "0 of 2 pods are ready",
    ]


PODS: list[tuple[Raw, str, str, str]] = [
    ({"ready": 1}, "warning", "1 of 2 pods are ready", "kubectl -n gpu-system describe pods"),
    ({"ready": 0}, "failure", "0 of 2 pods are ready", "and their logs"),
    ({"ready": None, "replicas": None}, "failure", "0 of 1 pods are ready", "and their logs"),
    ({"ready": None, "replicas": 0}, "warning", "has 0 replicas", "set its replicas to 1"),
]


@pytest.mark.parametrize(("more", "verdict", "observed", "fix"), PODS)
async def test_extender_pods_that_are_not_ready_are_counted(
    tmp_path: Path, more: Raw, verdict: str, observed: str, fix: str
) -> None:
    found = of(await diagnosed(tmp_path, server(deployment(**more))), "cluster.extender")
    is_bad(found, verdict, observed, fix)


async def test_without_permission_for_access_reviews_the_kubectl_command_is_shown(
    tmp_path: Path,
) -> None:
    made = server(deployment())
    made.forbidden = {("create", OTHERS)}
    found = of(await diagnosed(tmp_path, made), "cluster.extender")
    assert found.verdict.value == "skipped"
    assert "may not create subjectaccessreviews" in found.observed
    assert "--as system:serviceaccount:gpu-system:podgpu-extender" in found.observed


async def test_with_its_own_kubeconfig_the_service_account_is_not_checked(tmp_path: Path) -> None:
    container = {"image": "podgpu", "args": ["extender", "--kubeconfig=/etc/kubeconfig"]}
    made = server(deployment(container=container))
    found = of(await diagnosed(tmp_path, made), "cluster.extender")
    assert found.verdict.value == "skipped"
    assert "those of its --kubeconfig" in found.observed
    assert made.created == []


async def test_without_a_service_account_the_default_one_is_checked(tmp_path: Path) -> None:
    made = server(deployment(serviceAccountName=None))
    await diagnosed(tmp_path, made)
    users = {body["spec"]["user"] for _, body in made.created}
    assert users == {"system:serviceaccount:gpu-system:default"}


@pytest.mark.slow
async def test_without_an_extender_or_a_list_of_deployments_the_check_is_skipped(
    tmp_path: Path,
) -> None:
    other = deployment("web", container={"image": "nginx"})
    assert of(await diagnosed(tmp_path, server(other)), "cluster.extender").observed == (
        "none runs podgpu extender"
    )
    outside = of(await diagnosed(tmp_path, server(deployment()), "mon"), "cluster.extender")
    assert outside.verdict.value == "skipped"
    made = server(deployment())
    made.refusals = {DEPLOYMENTS: status(403, "Forbidden", "no")}
    refused = of(await diagnosed(tmp_path, made), "cluster.extender")
    assert (refused.verdict.value, refused.observed) == ("skipped", "cannot be listed")


CONTAINERS: list[tuple[Raw, dict[str, str], bool]] = [
    ({"image": "r.example:5000/gpu/podgpu:1@sha256:0", "args": ["extender"]}, {}, True),
    ({"image": "podgpu", "command": ["podgpu", "extender"]}, {}, True),
    ({"image": "mirror/gpu-tool", "args": ["extender", "--listen", ":9410"]}, CHART, True),
    ({"image": "mirror/gpu-tool", "args": ["extender"]}, {}, False),
    ({"image": "podgpu", "args": ["run"]}, {}, False),
    ({"image": "podgpu"}, {}, False),
    ({"image": "podgpu", "args": "extender"}, {}, False),
]


@pytest.mark.parametrize(("container", "labels", "is_one"), CONTAINERS)
def test_an_extender_is_identified_by_its_arguments_and_by_image_or_labels(
    container: Raw, labels: dict[str, str], is_one: bool
) -> None:
    assert is_extender(deployment(container=container, labels=labels)) is is_one


def test_the_documented_extender_is_identified_and_its_rules_are_checked() -> None:
    (extender,) = objects("extender.md", "Deployment")
    assert is_extender(extender)
    documented = {
        (verb, resource, group)
        for rule in rules("extender.md")
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }
    assert documented == {(right.verb, right.resource, right.group) for right in RIGHTS}


class FixedResponse:
    """An API server that responds to each access review with the same body or error."""

    def __init__(self, body: bytes | ApiError) -> None:
        self.body = body

    async def create(self, _: str, __: object) -> bytes:
        if isinstance(self.body, ApiError):
            raise self.body
        return self.body


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=8),
    UNEXPECTED,
    st.sampled_from([b"{}", b"[1]", b"<", None]),
)
async def test_an_unexpected_object_or_response_does_not_break_the_check(
    at: Sequence[int], unexpected: object, body: bytes | None
) -> None:
    broken = replaced(deployment(), list(at), unexpected)
    whole = [{**(broken if isinstance(broken, dict) else {}), "kind": "Deployment"}]
    api: Any = FixedResponse(ApiError("away") if body is None else body)
    found = await check_extenders(api, Cluster(deployments=whole))
    assert {each.check for each in found} == {"cluster.extender"}
