"""The checks of the source `pods`, with an API server that responds over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.api_permissions import REVIEWS
from sources.pods.doctor import examine
from sources.pods.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, verdicts, write
from tests.sources.pods.pod_objects import raw_pod
from tests.support.kube import ApiServer, Collection, status

PODS = "/api/v1/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODE = "node: node-1\n"


@asynccontextmanager
async def serving(*pods: str) -> AsyncIterator[ApiServer]:
    server = ApiServer({PODS: Collection(), SLICES: Collection()})
    for name in pods or ("train-0",):
        server.paths[PODS].put(raw_pod(name))
    async with server.serving():
        yield server


async def check_server(
    folder: Path, server: ApiServer, options: Options | None = None, text: str = ""
) -> list[Finding]:
    folder.mkdir(exist_ok=True)
    wanted = options or Options()
    made = Options(
        kubeconfig=server.kubeconfig(folder / "kubeconfig"),
        node=wanted.node,
        resource_slices=wanted.resource_slices,
    )
    return await examine(made, context(folder / "ctx", NODE + text))


ALL_OK = {"pods.server": "ok", "pods.rbac": "ok", "node.name": "ok", "twins": "ok"}


async def test_all_checks_of_a_healthy_server_are_ok_and_only_this_node_is_read(
    tmp_path: Path,
) -> None:
    async with serving() as server:
        found = await check_server(tmp_path, server)
    assert verdicts(found) == ALL_OK
    assert {path for path, _ in server.created} == {REVIEWS}
    selected = {query.get("fieldSelector") for path, query in server.requests if path != REVIEWS}
    assert selected == {"spec.nodeName=node-1"}, "only pods of this node are requested"


async def test_an_unreachable_server_is_the_only_failure(tmp_path: Path) -> None:
    async with serving() as server:
        pass
    found = await check_server(tmp_path, server)
    assert len(found) == 1, "its consequences are not reported"
    is_bad(of(found, "pods.server"), "failure", "Connect call failed", "NetworkPolicy")


async def test_an_expired_token_is_a_failure(tmp_path: Path) -> None:
    async with serving() as server:
        server.tokens = {"another"}
        found = await check_server(tmp_path, server)
    is_bad(of(found, "pods.server"), "failure", "rejected (401", "renew the token")


async def test_missing_credentials_are_a_failure(tmp_path: Path) -> None:
    kubeconfig = write(tmp_path / "kubeconfig", "{}")
    found = await examine(Options(kubeconfig=kubeconfig), context(tmp_path, NODE))
    is_bad(of(found, "pods.server"), "failure", "no credentials", "service account")


MISSING_VERBS = [
    (("list", PODS), "failure", "may not list pods", 'resources ["pods"], verbs [list]'),
    (("watch", PODS), "failure", "may not watch pods", 'resources ["pods"], verbs [watch]'),
    (
        ("list", "resourceslices"),
        "warning",
        "may not list resourceslices.resource.k8s.io",
        'apiGroups ["resource.k8s.io"], resources ["resourceslices"], verbs [list]',
    ),
    (
        ("watch", "resourceslices"),
        "warning",
        "may not watch resourceslices.resource.k8s.io",
        'resources ["resourceslices"], verbs [watch]',
    ),
    (
        ("get", "resourceclaims"),
        "warning",
        "may not get resourceclaims.resource.k8s.io",
        'resources ["resourceclaims"], verbs [get]',
    ),
]


@pytest.mark.parametrize("row", MISSING_VERBS, ids=lambda row: " ".join(row[0]))
async def test_each_missing_verb_is_named_with_the_rule_that_grants_it(
    tmp_path: Path, row: tuple[tuple[str, str], str, str, str]
) -> None:
    missing, verdict, observed, fix = row
    async with serving() as server:
        server.forbidden = server.unallowed = {missing}
        found = await check_server(tmp_path, server)
    is_bad(of(found, "pods.rbac"), verdict, observed, fix)
    assert of(found, "pods.server").verdict is Verdict.OK


async def test_each_missing_verb_is_a_finding(tmp_path: Path) -> None:
    async with serving() as server:
        server.forbidden = {("list", PODS), ("watch", PODS)}
        server.unallowed = {("list", "resourceslices")}
        found = await check_server(tmp_path, server)
    assert sum(each.check == "pods.rbac" for each in found) == 3


async def test_permissions_of_disabled_options_are_not_needed(tmp_path: Path) -> None:
    async with serving() as server:
        server.unallowed = {("list", "resourceslices"), ("watch", "resourceslices")}
        found = await check_server(tmp_path, server, Options(resource_slices=False))
    assert verdicts(found) == ALL_OK


async def test_a_wrong_node_name_is_a_failure(tmp_path: Path) -> None:
    server = ApiServer({PODS: Collection(), SLICES: Collection()})
    async with server.serving():
        found = await check_server(tmp_path, server, Options(node="podgpu-x7k2"))
    is_bad(of(found, "node.name"), "failure", "no Node is named podgpu-x7k2", "NODE_NAME")


@pytest.mark.slow
async def test_a_node_without_pods_is_ok_if_the_node_exists_and_may_be_read(
    tmp_path: Path,
) -> None:
    path = "/api/v1/nodes/node-1"
    server = ApiServer({PODS: Collection(), SLICES: Collection(), path: Collection()})
    async with server.serving():
        found = await check_server(tmp_path / "a", server)
        assert of(found, "node.name").verdict is Verdict.OK
        server.forbidden = {("list", path)}
        found = await check_server(tmp_path / "b", server)
        is_bad(of(found, "node.name"), "warning", "the Node has none", "kubectl get node node-1")
        server.forbidden = set()
        server.refusals[path] = status(500, "InternalError", "etcd is away")
        found = await check_server(tmp_path / "c", server)
        assert of(found, "node.name").verdict is Verdict.WARNING


async def test_a_failed_access_review_is_a_failure(tmp_path: Path) -> None:
    async with serving() as server:
        server.forbidden = {("create", REVIEWS)}
        found = await check_server(tmp_path, server)
    is_bad(of(found, "pods.server"), "failure", "403", "may query its own permissions")


EXPORTER = {"app.kubernetes.io/name": "podgpu"}
EXTENDER = {**EXPORTER, "app.kubernetes.io/component": "extender"}
DCGM = {"app.kubernetes.io/name": "dcgm-exporter"}
DAEMONSET, REPLICAS = "DaemonSet", "ReplicaSet"
READING_DCGM = "sources: {d: {kind: dcgm, url: 'http://localhost:9401/metrics'}}\n"


@pytest.mark.slow
async def test_two_exporters_on_the_node_are_a_warning(tmp_path: Path) -> None:
    async with serving() as server:
        put = server.paths[PODS].put
        put(raw_pod("podgpu-a", labels=EXPORTER))
        put(raw_pod("extender", labels=EXTENDER))
        put(raw_pod("ended", labels=EXPORTER, status={"phase": "Failed"}))
        put(
            raw_pod(
                "ending", labels=EXPORTER, metadata={"deletionTimestamp": "2026-11-01T08:00:00Z"}
            )
        )
        assert of(await check_server(tmp_path / "a", server), "twins").verdict is Verdict.OK
        put(raw_pod("dcgm-b", labels=DCGM))
        finding = of(await check_server(tmp_path / "b", server), "twins")
        is_bad(finding, "warning", "ml/dcgm-b, ml/podgpu-a", "remove one of them")
        with_source = await check_server(tmp_path / "c", server, text=READING_DCGM)
        assert of(with_source, "twins").verdict is Verdict.OK


def owned(*owners: tuple[str, str, bool]) -> dict[str, object]:
    return {
        "ownerReferences": [
            {"kind": kind, "uid": uid, "controller": is_controller}
            for kind, uid, is_controller in owners
        ]
    }


SAME, OTHER = owned((DAEMONSET, "u1", True)), owned((DAEMONSET, "u2", True))
PAIRS = [
    ("an update of podgpu", EXPORTER, SAME, EXPORTER, SAME, "ok"),
    ("an update of dcgm-exporter", DCGM, SAME, DCGM, SAME, "ok"),
    ("two DaemonSets", EXPORTER, SAME, EXPORTER, OTHER, "warning"),
    ("one of a DaemonSet and one without an owner", EXPORTER, SAME, EXPORTER, {}, "warning"),
    ("two pods without an owner", EXPORTER, {}, EXPORTER, {}, "warning"),
    (
        "two pods of a ReplicaSet, which both stay",
        EXPORTER,
        owned((REPLICAS, "u1", True)),
        EXPORTER,
        owned((REPLICAS, "u1", True)),
        "warning",
    ),
    (
        "a common owner that is not the controller",
        EXPORTER,
        owned((DAEMONSET, "u1", False)),
        EXPORTER,
        owned((DAEMONSET, "u1", False)),
        "warning",
    ),
    ("podgpu and dcgm-exporter", EXPORTER, SAME, DCGM, OTHER, "warning"),
]


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row[0])
async def test_two_pods_of_one_daemonset_are_an_update_and_no_duplicates(
    tmp_path: Path,
    row: tuple[str, dict[str, str], dict[str, object], dict[str, str], dict[str, object], str],
) -> None:
    _, labels, owners, other_labels, other_owners, verdict = row
    async with serving() as server:
        put = server.paths[PODS].put
        put(raw_pod("old", labels=labels, metadata=owners))
        put(raw_pod("new", labels=other_labels, metadata=other_owners))
        finding = of(await check_server(tmp_path, server), "twins")
    assert finding.verdict.value == verdict, finding
    assert "ml/new, ml/old" in finding.observed
    in_progress = "an update is in progress (ml/new, ml/old): the old pod ends when the new one is"
    assert (in_progress in finding.observed) == (verdict == "ok")


async def test_an_update_does_not_hide_a_second_exporter(tmp_path: Path) -> None:
    async with serving() as server:
        for name in ("a", "b"):
            server.paths[PODS].put(raw_pod(name, labels=EXPORTER, metadata=SAME))
        server.paths[PODS].put(raw_pod("c", labels=DCGM, metadata=OTHER))
        finding = of(await check_server(tmp_path, server), "twins")
    is_bad(finding, "warning", "2 GPU exporters run on this node: ml/a, ml/b, ml/c", "remove one")
