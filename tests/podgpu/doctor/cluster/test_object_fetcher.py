"""How the objects of a cluster are fetched from the API server."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.base.errors import ApiError
from pipeline.component.findings import Finding
from pipeline.kube.sessions import Sessions
from podgpu.doctor.cluster import object_fetcher
from podgpu.doctor.cluster.cluster_diagnosis import diagnose
from podgpu.doctor.cluster.object_fetcher import ObjectFetcher
from tests.podgpu.doctor.cluster.objects import Raw, daemonset, node, pod, raw
from tests.podgpu.doctor.support import free_port, is_bad, of, verdicts
from tests.support.kube import ApiServer, Collection

DAEMONSETS, NODES = "/apis/apps/v1/daemonsets", "/api/v1/nodes"
PODS = "/api/v1/namespaces/mon/pods"
CLASSES, SPACES = "/apis/node.k8s.io/v1/runtimeclasses", "/api/v1/namespaces"
OURS = daemonset(spec={"runtimeClassName": "nvidia"})


def collection(objects: Sequence[Raw]) -> Collection:
    made = Collection()
    for each in objects:
        # In a list, objects are without their kind.
        made.put({key: value for key, value in each.items() if key != "kind"})
    return made


def server(**others: Sequence[Raw]) -> ApiServer:
    lists: dict[str, Sequence[Raw]] = {
        DAEMONSETS: [OURS],
        NODES: [node()],
        PODS: [pod(OURS, "gpu-1")],
        CLASSES: [raw("RuntimeClass", "nvidia")],
        SPACES: [raw("Namespace", "mon")],
        **others,
    }
    return ApiServer({path: collection(objects) for path, objects in lists.items()})


async def diagnosed(folder: Path, made: ApiServer, namespace: str = "") -> list[Finding]:
    folder.mkdir(exist_ok=True)
    async with made.serving():
        kubeconfig = made.kubeconfig(folder / "kubeconfig")
        return await diagnose(Sessions().session, kubeconfig, namespace)


async def test_a_healthy_cluster_is_ok_and_only_lists_are_requested(tmp_path: Path) -> None:
    made = server()
    found = await diagnosed(tmp_path, made)
    assert verdicts(found) == {
        "cluster.server": "ok",
        "cluster.daemonset": "ok",
        "cluster.runtimeclass": "ok",
        "cluster.gpus": "ok",
        "cluster.servicemonitor": "skipped",
        "cluster.exporters": "ok",
        "cluster.extender": "skipped",
        "cluster.networkpolicy": "skipped",
    }
    assert made.created == []
    assert all("watch" not in query for _, query in made.requests)
    selected = [query.get("labelSelector") for path, query in made.requests if path == PODS]
    assert selected == ["app.kubernetes.io/name=podgpu"], "all pods of a cluster may be very many"


async def test_monitors_are_read_from_the_objects_of_the_prometheus_operator(
    tmp_path: Path,
) -> None:
    group = "/apis/monitoring.coreos.com"
    selector = {"matchLabels": {"app.kubernetes.io/name": "podgpu"}}
    lists: dict[str, Any] = {
        f"{group}/v1/podmonitors": [raw("PodMonitor", "gpu", "mon", spec={"selector": selector})],
        f"{group}/v1alpha1/prometheusagents": [
            raw("PrometheusAgent", "main", "mon", spec={"podMonitorSelector": {}})
        ],
    }
    found = await diagnosed(tmp_path, server(**lists))
    finding = of(found, "cluster.servicemonitor")
    assert finding.subject == "PodMonitor mon/gpu"
    assert finding.observed == "selected by PrometheusAgent mon/main"


async def test_a_refused_list_is_named_and_does_not_affect_other_checks(tmp_path: Path) -> None:
    made = server()
    made.forbidden = {("list", NODES)}
    found = await diagnosed(tmp_path, made)
    finding = of(found, "cluster.server")
    is_bad(finding, "warning", "may not list nodes", "give the kubeconfig's user a ClusterRole")
    assert verdicts(found)["cluster.gpus"] == "skipped"
    assert verdicts(found)["cluster.daemonset"] == "ok"


@pytest.mark.parametrize("fault", ["token", "port"])
async def test_a_server_that_cannot_be_queried_is_one_failure(tmp_path: Path, fault: str) -> None:
    made = server()
    if fault == "token":
        made.tokens = {"another"}
        found = await diagnosed(tmp_path, made)
    else:
        made.port = free_port()
        kubeconfig = made.kubeconfig(tmp_path / "kubeconfig")
        found = await diagnose(Sessions().session, kubeconfig, "")
    assert len(found) == 1
    is_bad(of(found, "cluster.server"), "failure", "127.0.0.1", "its token is valid")


async def test_many_objects_are_listed_in_pages_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_fetcher, "_PAGE_SIZE", 2)
    monkeypatch.setattr(object_fetcher, "_MAX_PAGES", 3)
    many = [node(f"gpu-{number}") for number in range(5)]
    found = await diagnosed(tmp_path / "a", server(**{NODES: many}))
    assert "5 have GPUs" in of(found, "cluster.gpus").observed
    many += [node(f"gpu-{number}") for number in range(5, 9)]
    found = await diagnosed(tmp_path / "b", server(**{NODES: many}))
    is_bad(of(found, "cluster.server"), "warning", "more than 6 objects", "that were listed")
    assert "6 have GPUs" in of(found, "cluster.gpus").observed


class ScriptedApi:
    """An API server with scripted responses for each path: pages, errors, or delays in seconds."""

    def __init__(self, scripts: Mapping[str, list[Any]]) -> None:
        self.scripts = {path: [*responses] for path, responses in scripts.items()}
        self.requested: list[tuple[str, str]] = []

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        self.requested.append((path, query.get("continue", "")))
        responses = self.scripts.get(path, [])
        response = responses.pop(0) if responses else ApiError("not found", status=404)
        if isinstance(response, float):
            await asyncio.sleep(response)
            return await self.get(path, query)
        if isinstance(response, Exception):
            raise response
        return orjson.dumps(response)


def listing(names: Sequence[str], more: str = "") -> Raw:
    items = [{"metadata": {"name": name}} for name in names]
    return {"items": items, "metadata": {"continue": more} if more else {}}


EXPIRED = ApiError("too old", status=410, reason="Expired")
UNAVAILABLE = ApiError("etcd is away", status=500)
UNREACHABLE = ApiError("Connect call failed")
BUSY = ApiError("too many requests", status=429)
SCRIPTS: list[tuple[list[Any], list[str] | None, str, str]] = [
    ([listing("ab", "2"), EXPIRED, listing("ab", "2"), listing("c")], ["a", "b", "c"], "", ""),
    (
        [listing("ab", "2"), EXPIRED, listing("a", "1"), EXPIRED, EXPIRED],
        ["a", "b"],
        "too old",
        "listed: 2",
    ),
    ([UNAVAILABLE], None, "etcd is away", "the log of the API server"),
    ([listing("ab", "2"), UNAVAILABLE], ["a", "b"], "etcd is away", "that were listed: 2"),
    ([BUSY], None, "too many", "the log of the API server"),
    ([UNREACHABLE], None, "Connect call failed", "the address is correct"),
    ([200.0], None, "takes longer than 40 s", "the load of the API server"),
    ([listing("a", "1"), 200.0], ["a"], "takes longer than 40 s", "that were listed: 1"),
    ([30.0, listing("a")], ["a"], "", ""),
]


@pytest.mark.looptime
@pytest.mark.parametrize("row", SCRIPTS, ids=range(len(SCRIPTS)))
async def test_pages_that_were_fetched_are_kept_when_a_later_one_fails(
    row: tuple[list[Any], list[str] | None, str, str],
) -> None:
    script, names, observed, fix = row
    fetcher = ObjectFetcher(ScriptedApi({NODES: script}))  # type: ignore[arg-type]
    found = await fetcher.listed("Node", NODES)
    assert (None if found is None else [each["metadata"]["name"] for each in found]) == names
    assert [each.verdict.value for each in fetcher.findings] == (["warning"] if observed else [])
    for each in fetcher.findings:
        is_bad(each, "warning", observed, fix)


@pytest.mark.looptime
async def test_lists_are_fetched_concurrently() -> None:
    lists = [DAEMONSETS, NODES, CLASSES, SPACES, PODS, "/api/v1/namespaces/mon/services"]
    scripts: dict[str, list[Any]] = {path: [8.0, listing([])] for path in lists}
    scripts[DAEMONSETS] = [8.0, {"items": [OURS]}]
    begun = asyncio.get_running_loop().time()
    fetcher = ObjectFetcher(ScriptedApi(scripts))  # type: ignore[arg-type]
    made = await fetcher.cluster("")
    assert asyncio.get_running_loop().time() - begun == pytest.approx(16)
    assert fetcher.findings == []
    assert made.nodes == []


@pytest.mark.parametrize("fault", [UNREACHABLE, ApiError("no", status=401)])
async def test_after_an_authentication_or_connection_error_no_more_is_requested(
    fault: ApiError,
) -> None:
    made = ScriptedApi({DAEMONSETS: [fault]})
    with pytest.raises(ApiError):
        await ObjectFetcher(made).cluster("")  # type: ignore[arg-type]
    assert made.requested == [(DAEMONSETS, "")]


async def test_a_failed_list_of_daemonsets_does_not_prevent_other_lists() -> None:
    made = ScriptedApi({DAEMONSETS: [UNAVAILABLE], NODES: [listing("a")]})
    fetcher = ObjectFetcher(made)  # type: ignore[arg-type]
    cluster = await fetcher.cluster("")
    assert cluster.daemonsets is None
    assert cluster.pods is None
    assert cluster.services is None
    assert cluster.nodes is not None
    assert len(fetcher.findings) == 1


async def test_pods_of_a_daemonset_are_known_by_their_owner(tmp_path: Path) -> None:
    ours = daemonset()
    key = "app.kubernetes.io/name"
    ours["spec"]["selector"] = {
        "matchExpressions": [{"key": key, "operator": "In", "values": ["podgpu"]}]
    }
    made = server(**{DAEMONSETS: [ours]})
    found = await diagnosed(tmp_path, made)
    assert "on each of 1 nodes" in of(found, "cluster.exporters").observed
    selected = [query.get("labelSelector") for path, query in made.requests if path == PODS]
    assert selected == [None], "without labels, all pods of the namespace are listed"


async def test_services_are_listed_in_the_namespace_of_podgpu(tmp_path: Path) -> None:
    service = raw(
        "Service",
        "gpu",
        "mon",
        labels={"app.kubernetes.io/name": "podgpu"},
        spec={"selector": {"app.kubernetes.io/name": "podgpu"}, "ports": [{"name": "metrics"}]},
    )
    group = "/apis/monitoring.coreos.com/v1"
    selects = {"selector": {"matchLabels": {"app.kubernetes.io/name": "podgpu"}}}
    lists: dict[str, Any] = {
        "/api/v1/namespaces/mon/services": [service],
        f"{group}/servicemonitors": [
            raw("ServiceMonitor", "gpu", "mon", spec={**selects, "endpoints": [{"port": "x"}]})
        ],
    }
    found = await diagnosed(tmp_path, server(**lists))
    is_bad(of(found, "cluster.servicemonitor"), "warning", "names the port x", "Service mon/gpu")


async def test_only_the_given_namespace_is_checked(tmp_path: Path) -> None:
    found = await diagnosed(tmp_path, server(), "elsewhere")
    is_bad(of(found, "cluster.daemonset"), "failure", "podgpu in elsewhere", "--namespace")
