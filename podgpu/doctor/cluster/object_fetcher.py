"""Fetch a cluster's objects, page by page; a failed list disables only the checks that need it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import Finding
from pipeline.diagnostics.api_permissions import FORBIDDEN, NOT_FOUND, Right, fix_for
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from pipeline.kube.request import Request
from podgpu.doctor.cluster.checks import CHECKS
from podgpu.doctor.cluster.objects import Cluster, Raw, exporter_kind, namespace_of
from podgpu.doctor.cluster.scheduling_rules import selector_text
from podgpu.doctor.cluster.unready_pods import FAILED_CREATE, missing_pods

_PAGE_SIZE: Final = 500
_MAX_PAGES: Final = 40
"""20,000 objects of a kind: more than the number of nodes that Kubernetes supports."""

_LIST_TIMEOUT: Final = 40.0
"""Time limit for all pages of one list."""

_GONE: Final = 410
_ATTEMPTS: Final = 3
"""How often a list is started: a server keeps its state for some minutes only."""

_UNKNOWN: Final = frozenset({0, 401})
"""Not reachable, or not authenticated: all other lists would fail too."""

_MONITORING: Final = "/apis/monitoring.coreos.com"
_MONITORS: Final = (
    ("ServiceMonitor", f"{_MONITORING}/v1/servicemonitors"),
    ("PodMonitor", f"{_MONITORING}/v1/podmonitors"),
)
_PROMETHEUSES: Final = (
    ("Prometheus", f"{_MONITORING}/v1/prometheuses"),
    ("PrometheusAgent", f"{_MONITORING}/v1alpha1/prometheusagents"),
)
_SLICES: Final = tuple(
    ("ResourceSlice", f"/apis/resource.k8s.io/{version}/resourceslices")
    for version in ("v1", "v1beta2", "v1beta1")
)
_PARTIAL_LIST: Final = "the checks use the objects that were listed"


@dataclass(slots=True)
class Fetcher:
    """Fetches the objects in one session.

    Attributes:
        api: the session.
        findings: findings of `cluster.server`, for requests that failed.
    """

    api: KubeApi
    findings: list[Finding] = field(default_factory=list)

    async def cluster(self, namespace: str) -> Cluster:
        """Fetch all objects that the checks need. The lists run concurrently, to save time.

        Raises:
            ApiError: the server is not reachable, or does not accept the credentials.
        """
        daemonsets = await self.listed("DaemonSet", "/apis/apps/v1/daemonsets", vital=True)
        (
            nodes,
            classes,
            spaces,
            slices,
            monitors,
            prometheuses,
            pods,
            services,
            deployments,
            events,
        ) = await asyncio.gather(
            self.listed("Node", "/api/v1/nodes"),
            self.listed("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses"),
            self.listed("Namespace", "/api/v1/namespaces"),
            self._of_kinds(_SLICES),
            self._of_kinds(_MONITORS),
            self._of_kinds(_PROMETHEUSES),
            self._pods(daemonsets),
            self._services(daemonsets),
            self.listed("Deployment", "/apis/apps/v1/deployments"),
            self._events(daemonsets),
        )
        return Cluster(
            nodes,
            daemonsets,
            pods,
            classes,
            slices,
            spaces,
            monitors,
            prometheuses,
            services,
            deployments,
            events,
            namespace=namespace,
        )

    async def listed(
        self, kind: str, path: str, selector: str = "", *, fields: str = "", vital: bool = False
    ) -> list[Raw] | None:
        """Return the objects of a kind; None, and usually a finding, if there are none.

        Args:
            kind: the kind, which objects in a list lack.
            path: path of the collection.
            selector: label selector.
            fields: field selector.
            vital: no check is possible without this list.

        Raises:
            ApiError: the list is vital, and the server is not reachable or does not accept the
                credentials.
        """
        found: list[Raw] = []
        query = {"limit": str(_PAGE_SIZE)} | ({"labelSelector": selector} if selector else {})
        query |= {"fieldSelector": fields} if fields else {}
        check = CHECKS["cluster.server"]
        try:
            async with asyncio.timeout(_LIST_TIMEOUT):
                for attempt in range(1, _ATTEMPTS + 1):
                    try:
                        return await self._pages(kind, path, query, found)
                    except ApiError as error:
                        if error.status != _GONE or attempt == _ATTEMPTS:
                            raise
        except TimeoutError:
            observed = f"takes longer than {_LIST_TIMEOUT:g} s"
            fix = "check the load of the API server, and the network to it"
            self.findings.append(check.warning(path, observed, fix + self._partial_note(found)))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            if vital and error.status in _UNKNOWN:
                raise
            self.findings.append(self._refused(path, error, found))
        return found or None

    def _refused(self, path: str, error: ApiError, found: Sequence[Raw]) -> Finding:
        check = CHECKS["cluster.server"]
        if error.status != FORBIDDEN:
            return check.warning(path, str(error), fix_for(error) + self._partial_note(found))
        target = Request("GET", path).target
        right = Right("list", target.resource, target.group, namespace=target.namespace)
        return check.warning(path, f"may not {right}", right.fix_for("the kubeconfig's user"))

    @staticmethod
    def _partial_note(found: Sequence[Raw]) -> str:
        return f"; {_PARTIAL_LIST}: {len(found)}" if found else ""

    async def _pages(
        self, kind: str, path: str, query: dict[str, str], found: list[Raw]
    ) -> list[Raw] | None:
        """Replace the content of `found` by all objects; return them.

        Raises:
            ApiError: as `KubeApi.get` does; `found` then has the objects of the pages before.
        """
        check, more = CHECKS["cluster.server"], ""
        before, fresh = list(found), list[Raw]()
        for _ in range(_MAX_PAGES):
            page = await self.api.get(path, query | ({"continue": more} if more else {}))
            try:
                response = as_dict(orjson.loads(page))
            except orjson.JSONDecodeError:
                fix = "check that the kubeconfig's server is a Kubernetes API server"
                self.findings.append(check.warning(path, "the response is not JSON", fix))
                return None
            fresh += [{**each, "kind": kind} for each in as_dicts(response.get("items"))]
            # Keep the objects of an earlier attempt while that one had more.
            found[:] = fresh if len(fresh) >= len(before) else before
            more = as_text(as_dict(response.get("metadata")).get("continue"))
            if not more:
                return fresh
        observed, fix = f"more than {_PAGE_SIZE * _MAX_PAGES} objects", f"nothing: {_PARTIAL_LIST}"
        self.findings.append(check.warning(path, observed, fix))
        return fresh

    async def _of_kinds(self, kinds: Sequence[tuple[str, str]]) -> list[Raw] | None:
        """Return the objects of several kinds; None if the cluster has none of these kinds."""
        lists = await asyncio.gather(*(self.listed(kind, path) for kind, path in kinds))
        known = [each for each in lists if each is not None]
        return [raw for each in known for raw in each] if known else None

    async def _pods(self, daemonsets: Sequence[Raw] | None) -> list[Raw] | None:
        """Return the pods of exporters only, since a cluster may have very many pods."""
        wanted = [
            (
                f"/api/v1/namespaces/{quote(namespace_of(each), safe='')}/pods",
                selector_text(as_dict(each.get("spec")).get("selector")),
            )
            for each in daemonsets or ()
            if exporter_kind(each) is not None
        ]
        lists = [
            await self.listed("Pod", path, selector)
            for path, selector in dict.fromkeys(wanted)
            if selector
        ]
        if daemonsets is None or None in lists:
            return None
        return [pod for each in lists for pod in each or ()]

    async def _events(self, daemonsets: Sequence[Raw] | None) -> list[Raw] | None:
        """Return the events of refused pods, only of DaemonSets of podgpu that lack pods."""
        short = [
            namespace_of(each)
            for each in daemonsets or ()
            if exporter_kind(each) == "podgpu" and missing_pods(each)
        ]
        fields = f"involvedObject.kind=DaemonSet,reason={FAILED_CREATE}"
        lists = [
            await self.listed(
                "Event", f"/api/v1/namespaces/{quote(space, safe='')}/events", fields=fields
            )
            for space in dict.fromkeys(short)
        ]
        return [event for each in lists for event in each or ()]

    async def _services(self, daemonsets: Sequence[Raw] | None) -> list[Raw] | None:
        """Return the Services in podgpu's namespaces; None if a list fails."""
        ours = [each for each in daemonsets or () if exporter_kind(each) == "podgpu"]
        lists = [
            await self.listed("Service", f"/api/v1/namespaces/{quote(space, safe='')}/services")
            for space in dict.fromkeys(map(namespace_of, ours))
        ]
        if daemonsets is None or None in lists:
            return None
        return [service for each in lists for service in each or ()]
