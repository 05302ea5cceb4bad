"""Fetches a cluster's objects, page by page. A failed list skips only the checks that need it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics.api_permissions import FORBIDDEN, NOT_FOUND, Right, fix_for
from pipeline.kube.api_request import ApiRequest
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from podgpu.doctor.cluster.objects import Cluster, Listed, Raw, exporter_kind, namespace_of
from podgpu.doctor.cluster.unready_pods import FAILED_CREATE, missing_pods

SERVER: Final = Check("cluster.server", BOTH)

_PAGE_SIZE: Final = 500
_MAX_PAGES: Final = 40
"""Maximum number of pages: 20,000 objects of a kind, more nodes than Kubernetes supports."""

_LIST_TIMEOUT: Final = 40.0
"""Time limit in seconds for all pages of one list."""

_GONE: Final = 410
_ATTEMPTS: Final = 3
"""How often a list may be started: a server can continue a list only for some minutes."""

_UNKNOWN: Final = frozenset({0, 401})
"""Statuses for: not reachable, not authenticated. All other lists would fail too."""

_MONITORING: Final = "/apis/monitoring.coreos.com"
_LISTS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "nodes": [("Node", "/api/v1/nodes")],
    "runtimeclasses": [("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses")],
    "namespaces": [("Namespace", "/api/v1/namespaces")],
    "slices": [
        ("ResourceSlice", f"/apis/resource.k8s.io/{version}/resourceslices")
        for version in ("v1", "v1beta2", "v1beta1")
    ],
    "monitors": [
        ("ServiceMonitor", f"{_MONITORING}/v1/servicemonitors"),
        ("PodMonitor", f"{_MONITORING}/v1/podmonitors"),
    ],
    "prometheuses": [
        ("Prometheus", f"{_MONITORING}/v1/prometheuses"),
        ("PrometheusAgent", f"{_MONITORING}/v1alpha1/prometheusagents"),
    ],
    "deployments": [("Deployment", "/apis/apps/v1/deployments")],
}
"""Kinds and paths of the objects in each attribute of `Cluster`."""

_PARTIAL_LIST: Final = "the checks use the objects that were listed"


@dataclass(slots=True)
class ObjectFetcher:
    """Fetches the objects of a cluster in one session.

    Attributes:
        api: the session.
        findings: findings of `cluster.server`: failed requests, and lists that are incomplete.
    """

    api: KubeApi
    findings: list[Finding] = field(default_factory=list)

    async def cluster(self, namespace: str) -> Cluster:
        """Fetch all objects that the checks need; lists are fetched concurrently.

        Raises:
            ApiError: the server is not reachable, or does not accept the credentials.
        """
        daemonsets = await self.listed("DaemonSet", "/apis/apps/v1/daemonsets", vital=True)
        exporters = [each for each in daemonsets or () if exporter_kind(each) is not None]
        ours = [each for each in exporters if exporter_kind(each) == "podgpu"]
        short = [each for each in ours if missing_pods(each)]
        refused = f"involvedObject.kind=DaemonSet,reason={FAILED_CREATE}"
        lists = await asyncio.gather(
            *(self._of_kinds(kinds) for kinds in _LISTS.values()),
            # A cluster may have very many pods, services and events.
            self._in_namespaces("Pod", {(namespace_of(e), _labels(e), "") for e in exporters}),
            self._in_namespaces("Service", {(namespace_of(each), "", "") for each in ours}),
            self._in_namespaces("Event", {(namespace_of(each), "", refused) for each in short}),
        )
        fetched = dict(zip((*_LISTS, "pods", "services", "events"), lists, strict=True))
        if daemonsets is None:
            fetched |= {"pods": None, "services": None}
        return Cluster(daemonsets=daemonsets, namespace=namespace, **fetched)

    async def listed(
        self, kind: str, path: str, selector: str = "", *, fields: str = "", vital: bool = False
    ) -> list[Raw] | None:
        """Return the objects of a kind, as far as they can be listed; None if there is no list.

        A failed request adds a finding, unless the cluster does not have the kind.

        Args:
            kind: the kind, which is added to each object.
            path: path of the collection.
            selector: label selector.
            fields: field selector.
            vital: whether all checks need this list.

        Raises:
            ApiError: the list is vital, and the server is not reachable or does not accept the
                credentials.
        """
        found: list[Raw] = []
        query = {"limit": str(_PAGE_SIZE)} | ({"labelSelector": selector} if selector else {})
        query |= {"fieldSelector": fields} if fields else {}
        try:
            async with asyncio.timeout(_LIST_TIMEOUT):
                return await self._pages(kind, path, query, found)
        except TimeoutError:
            observed = f"takes longer than {_LIST_TIMEOUT:g} s"
            fix = "check the load of the API server, and the network to it"
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            if vital and error.status in _UNKNOWN:
                raise
            observed, fix = str(error), fix_for(error)
            if error.status == FORBIDDEN:
                target = ApiRequest("GET", path).target
                right = Right("list", target.resource, target.group, namespace=target.namespace)
                observed, fix = f"may not {right}", right.fix("the kubeconfig's user")
        if found:
            fix = f"{fix}; {_PARTIAL_LIST}: {len(found)}"
        self.findings.append(SERVER.warning(path, observed, fix))
        return found or None

    async def _pages(
        self, kind: str, path: str, query: dict[str, str], found: list[Raw]
    ) -> list[Raw] | None:
        """Fetch objects page by page into `found`, and return them; None if a response is not JSON.

        It stops after `_MAX_PAGES` pages, with a finding.

        Raises:
            ApiError: as `KubeApi.get` does; `found` then has the objects of the attempt with most.
        """
        more, attempts = "", 1
        fresh: list[Raw] = []
        for _ in range(_MAX_PAGES):
            try:
                page = await self.api.get(path, query | ({"continue": more} if more else {}))
                response = as_dict(orjson.loads(page))
            except ApiError as error:
                if error.status != _GONE or attempts == _ATTEMPTS:
                    raise
                attempts, more, fresh = attempts + 1, "", []
                continue
            except orjson.JSONDecodeError:
                fix = "check that the kubeconfig's server is a Kubernetes API server"
                self.findings.append(SERVER.warning(path, "the response is not JSON", fix))
                return None
            fresh += [{**each, "kind": kind} for each in as_dicts(response.get("items"))]
            # Keep the objects of an earlier attempt while that one had more.
            if len(fresh) >= len(found):
                found[:] = fresh
            more = as_text(as_dict(response.get("metadata")).get("continue"))
            if not more:
                return fresh
        observed, fix = f"more than {_PAGE_SIZE * _MAX_PAGES} objects", f"nothing: {_PARTIAL_LIST}"
        self.findings.append(SERVER.warning(path, observed, fix))
        return fresh

    async def _of_kinds(self, kinds: Sequence[tuple[str, str]]) -> Listed:
        """Return the objects of several kinds; None if no kind could be listed."""
        lists = await asyncio.gather(*(self.listed(kind, path) for kind, path in kinds))
        known = [each for each in lists if each is not None]
        return [raw for each in known for raw in each] if known else None

    async def _in_namespaces(self, kind: str, wanted: set[tuple[str, str, str]]) -> Listed:
        """Return objects by (namespace, label selector, field selector); None if a list fails."""
        lists = [
            await self.listed(
                kind,
                f"/api/v1/namespaces/{quote(space, safe='')}/{kind.lower()}s",
                labels,
                fields=fields,
            )
            for space, labels, fields in sorted(wanted)
        ]
        return None if None in lists else [raw for each in lists for raw in each or ()]


def _labels(daemonset: Raw) -> str:
    """Return a label selector for the pods of a DaemonSet, from its `matchLabels`."""
    wanted = as_dict(as_dict(as_dict(daemonset.get("spec")).get("selector")).get("matchLabels"))
    return ",".join(f"{key}={value}" for key, value in wanted.items())
