"""What the doctor says of the API server, each fault provoked on one that answers over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sources.pods.doctor import examine
from sources.pods.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, verdicts, write
from tests.sources.pods.raws import raw_pod
from tests.support.kube import ApiServer, Collection, status

PODS = "/api/v1/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = [
    f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims/podgpu-doctor"
    for version in ("v1", "v1beta2", "v1beta1")
]
"""A ResourceClaim that isn't there: whether it may be read is seen all the same."""
OLD_SLICES = "/apis/resource.k8s.io/v1beta1/resourceslices"
NODE = "node: node-1\n"


@asynccontextmanager
async def serving(*pods: str, slices: str = SLICES) -> AsyncIterator[ApiServer]:
    server = ApiServer({PODS: Collection(), slices: Collection()})
    for name in pods or ("train-0",):
        server.paths[PODS].put(raw_pod(name))
    async with server.serving():
        yield server


async def looked(
    folder: Path, server: ApiServer, options: Options | None = None, text: str = ""
) -> list[Finding]:
    folder.mkdir(exist_ok=True)
    asked = options or Options()
    made = Options(
        kubeconfig=server.kubeconfig(folder / "kubeconfig"),
        node=asked.node,
        resource_slices=asked.resource_slices,
    )
    return await examine(made, context(folder / "ctx", NODE + text))


WELL = {"pods.server": "ok", "pods.rbac": "ok", "node.name": "ok", "twins": "ok"}


async def test_a_healthy_server_is_well_in_all_and_nothing_is_changed(tmp_path: Path) -> None:
    async with serving() as server:
        found = await looked(tmp_path, server)
    assert verdicts(found) == WELL
    selected = {query.get("fieldSelector") for p, query in server.requests if p not in CLAIMS}
    assert selected == {"spec.nodeName=node-1"}, "no other node's pods are asked for"


async def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    async with serving() as server:
        pass
    found = await looked(tmp_path, server)
    assert len(found) == 1, "what follows from it is not told"
    is_bad(of(found, "pods.server"), "failure", "Connect call failed", "NetworkPolicy")


async def test_a_token_that_has_expired(tmp_path: Path) -> None:
    async with serving() as server:
        server.tokens = {"another"}
        found = await looked(tmp_path, server)
    is_bad(of(found, "pods.server"), "failure", "rejected (401", "renew the token")


async def test_no_credentials_at_all(tmp_path: Path) -> None:
    kubeconfig = write(tmp_path / "kubeconfig", "{}")
    found = await examine(Options(kubeconfig=kubeconfig), context(tmp_path, NODE))
    is_bad(of(found, "pods.server"), "failure", "no credentials", "service account")


VERBS = [
    (("list", PODS), "failure", "may not list pods", 'resources ["pods"], verbs [list]'),
    (("watch", PODS), "failure", "may not watch pods", 'resources ["pods"], verbs [watch]'),
    (
        ("list", SLICES),
        "warning",
        "may not list resourceslices.resource.k8s.io",
        'apiGroups ["resource.k8s.io"], resources ["resourceslices"], verbs [list]',
    ),
    (
        ("watch", SLICES),
        "warning",
        "may not watch resourceslices.resource.k8s.io",
        'resources ["resourceslices"], verbs [watch]',
    ),
    (
        ("list", CLAIMS[0]),
        "warning",
        "may not get resourceclaims.resource.k8s.io",
        'resources ["resourceclaims"], verbs [get]',
    ),
]


@pytest.mark.parametrize("row", VERBS, ids=lambda row: " ".join(row[0]))
async def test_each_verb_that_is_missing_is_named_with_its_rule(
    tmp_path: Path, row: tuple[tuple[str, str], str, str, str]
) -> None:
    missing, verdict, saw, repair = row
    async with serving() as server:
        server.forbidden = {missing}
        found = await looked(tmp_path, server)
    is_bad(of(found, "pods.rbac"), verdict, saw, repair)
    assert of(found, "pods.server").verdict is Verdict.OK


async def test_several_missing_verbs_are_a_finding_each(tmp_path: Path) -> None:
    async with serving() as server:
        server.forbidden = {("list", PODS), ("watch", PODS), ("list", SLICES)}
        found = await looked(tmp_path, server)
    assert sum(each.check == "pods.rbac" for each in found) == 3


async def test_an_older_api_of_slices_will_do_and_none_too(tmp_path: Path) -> None:
    async with serving(slices=OLD_SLICES) as server:
        assert verdicts(await looked(tmp_path / "a", server)) == WELL
        server.forbidden = {("watch", OLD_SLICES)}
        assert verdicts(await looked(tmp_path / "b", server))["pods.rbac"] == "warning"
        unasked = Options(resource_slices=False)
        assert verdicts(await looked(tmp_path / "c", server, unasked)) == WELL
    async with serving(slices="/none") as server:
        assert verdicts(await looked(tmp_path / "d", server)) == WELL


async def test_a_name_that_is_not_the_node_s(tmp_path: Path) -> None:
    server = ApiServer({PODS: Collection(), SLICES: Collection()})
    async with server.serving():
        found = await looked(tmp_path, server, Options(node="podgpu-x7k2"))
    is_bad(of(found, "node.name"), "failure", "no Node is named podgpu-x7k2", "NODE_NAME")


async def test_a_node_without_any_pod_is_well_if_it_is_there_and_may_be_read(
    tmp_path: Path,
) -> None:
    path = "/api/v1/nodes/node-1"
    server = ApiServer({PODS: Collection(), SLICES: Collection(), path: Collection()})
    async with server.serving():
        found = await looked(tmp_path / "a", server)
        assert of(found, "node.name").verdict is Verdict.OK
        server.forbidden = {("list", path)}
        found = await looked(tmp_path / "b", server)
        is_bad(of(found, "node.name"), "warning", "the Node has none", "kubectl get node node-1")
        server.forbidden = set()
        server.refusals[path] = status(500, "InternalError", "etcd is away")
        found = await looked(tmp_path / "c", server)
        assert of(found, "node.name").verdict is Verdict.WARNING


@pytest.mark.parametrize(("code", "reason"), [(500, "InternalError"), (429, "TooManyRequests")])
async def test_slices_that_a_server_fails_to_give_are_reported(
    tmp_path: Path, code: int, reason: str
) -> None:
    async with serving() as server:
        server.refusals[SLICES] = status(code, reason, "away")
        found = await looked(tmp_path, server)
    given_out = [each for each in found if each.check == "pods.server"]
    assert [each.verdict for each in given_out] == [Verdict.OK, Verdict.WARNING]
    is_bad(given_out[1], "warning", str(code), "the log of the API server")
    assert of(found, "pods.rbac").verdict is Verdict.OK


EXPORTER = {"app.kubernetes.io/name": "podgpu"}
EXTENDER = {**EXPORTER, "app.kubernetes.io/component": "extender"}
DCGM = {"app.kubernetes.io/name": "dcgm-exporter"}
DAEMONSET, REPLICAS = "DaemonSet", "ReplicaSet"
READS = "sources: {d: {kind: dcgm, url: 'http://localhost:9401/metrics'}}\n"


async def test_two_exporters_on_the_node(tmp_path: Path) -> None:
    async with serving() as server:
        put = server.paths[PODS].put
        put(raw_pod("podgpu-a", labels=EXPORTER))
        put(raw_pod("extender", labels=EXTENDER))
        put(raw_pod("ended", labels=EXPORTER, status={"phase": "Failed"}))
        put(
            raw_pod(
                "going", labels=EXPORTER, metadata={"deletionTimestamp": "2026-11-01T08:00:00Z"}
            )
        )
        assert of(await looked(tmp_path / "a", server), "twins").verdict is Verdict.OK
        put(raw_pod("dcgm-b", labels=DCGM))
        given_out = of(await looked(tmp_path / "b", server), "twins")
        is_bad(given_out, "warning", "ml/dcgm-b, ml/podgpu-a", "remove one of them")
        reads = await looked(tmp_path / "c", server, text=READS)
        assert of(reads, "twins").verdict is Verdict.OK


def owned(*owners: tuple[str, str, bool]) -> dict[str, object]:
    return {
        "ownerReferences": [
            {"kind": kind, "uid": uid, "controller": controls} for kind, uid, controls in owners
        ]
    }


SAME, OTHER = owned((DAEMONSET, "u1", True)), owned((DAEMONSET, "u2", True))
PAIRS = [
    ("an update of podgpu's", EXPORTER, SAME, EXPORTER, SAME, "ok"),
    ("an update of dcgm-exporter's", DCGM, SAME, DCGM, SAME, "ok"),
    ("two DaemonSets", EXPORTER, SAME, EXPORTER, OTHER, "warning"),
    ("one and a pod of nobody's", EXPORTER, SAME, EXPORTER, {}, "warning"),
    ("two pods of nobody's", EXPORTER, {}, EXPORTER, {}, "warning"),
    (
        "two of a ReplicaSet, which stay",
        EXPORTER,
        owned((REPLICAS, "u1", True)),
        EXPORTER,
        owned((REPLICAS, "u1", True)),
        "warning",
    ),
    (
        "an owner in common that makes neither",
        EXPORTER,
        owned((DAEMONSET, "u1", False)),
        EXPORTER,
        owned((DAEMONSET, "u1", False)),
        "warning",
    ),
    ("podgpu's and dcgm-exporter's", EXPORTER, SAME, DCGM, OTHER, "warning"),
]


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row[0])
async def test_two_pods_of_one_daemonset_are_its_update_and_no_twins(
    tmp_path: Path,
    row: tuple[str, dict[str, str], dict[str, object], dict[str, str], dict[str, object], str],
) -> None:
    _, labels, owners, other_labels, other_owners, verdict = row
    async with serving() as server:
        put = server.paths[PODS].put
        put(raw_pod("old", labels=labels, metadata=owners))
        put(raw_pod("new", labels=other_labels, metadata=other_owners))
        given_out = of(await looked(tmp_path, server), "twins")
    assert given_out.verdict.value == verdict, given_out
    assert "ml/new, ml/old" in given_out.observed
    under_way = "an update is in progress (ml/new, ml/old): the old pod ends when the new one is"
    assert (under_way in given_out.observed) == (verdict == "ok")


async def test_an_update_hides_no_second_exporter(tmp_path: Path) -> None:
    async with serving() as server:
        for name in ("a", "b"):
            server.paths[PODS].put(raw_pod(name, labels=EXPORTER, metadata=SAME))
        server.paths[PODS].put(raw_pod("c", labels=DCGM, metadata=OTHER))
        given_out = of(await looked(tmp_path, server), "twins")
    is_bad(given_out, "warning", "2 GPU exporters run on this node: ml/a, ml/b, ml/c", "remove one")
