"""Fetches the objects, page by page; what can't be had costs the checks that need it."""

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
from pipeline.diagnostics.check_table import CHECKS
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from pipeline.kube.request import Request
from podgpu.doctor.cluster.objects import Cluster, Raw, exporter_kind, namespace_of
from podgpu.doctor.cluster.scheduling_rules import selector_text
from podgpu.doctor.cluster.unready_pods import FAILED_CREATE, missing_pods

_PAGE: Final = 500
_PAGES: Final = 40
"""20,000 objects of a kind: more nodes than Kubernetes is made for."""

_SECONDS: Final = 40.0
"""For all pages of one list."""

_GONE: Final = 410
_ANEW: Final = 3
"""How often a list is begun: a server forgets what it listed after some minutes."""

_UNKNOWN: Final = frozenset({0, 401})
"""Not reached, or not taken for anybody: then no other list would be had."""

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
_PARTLY: Final = "the checks look at the objects that were listed"


@dataclass(slots=True)
class Fetcher:
    """One session's fetching.

    Attributes:
        api: the session.
        findings: of `cluster.server`, where something was refused.
    """

    api: KubeApi
    findings: list[Finding] = field(default_factory=list)

    async def cluster(self, namespace: str) -> Cluster:
        """Fetch all that is looked at; the lists side by side, since a server may be slow.

        Raises:
            ApiError: the server can't be reached, or doesn't accept the credentials.
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
            self._some(_SLICES),
            self._some(_MONITORS),
            self._some(_PROMETHEUSES),
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
        """Return the objects of a kind; None, and a finding, if none can be had.

        Args:
            kind: what a list leaves out of its objects.
            path: of the collection.
            selector: of labels.
            fields: selector of fields.
            vital: without an answer there is nothing to be looked at.

        Raises:
            ApiError: it is vital, and the server can't be reached or doesn't take the credentials.
        """
        found: list[Raw] = []
        query = {"limit": str(_PAGE)} | ({"labelSelector": selector} if selector else {})
        query |= {"fieldSelector": fields} if fields else {}
        check = CHECKS["cluster.server"]
        try:
            async with asyncio.timeout(_SECONDS):
                for begun in range(1, _ANEW + 1):
                    try:
                        return await self._pages(kind, path, query, found)
                    except ApiError as error:
                        if error.status != _GONE or begun == _ANEW:
                            raise
        except TimeoutError:
            saw = f"takes longer than {_SECONDS:g} s"
            mend = "see the load of the API server, and the way to it"
            self.findings.append(check.warning(path, saw, mend + self._rest(found)))
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
            return check.warning(path, str(error), fix_for(error) + self._rest(found))
        target = Request("GET", path).target
        right = Right("list", target.resource, target.group, namespace=target.namespace)
        return check.warning(path, f"may not {right}", right.fix_for("the kubeconfig's user"))

    @staticmethod
    def _rest(found: Sequence[Raw]) -> str:
        return f"; {_PARTLY}: {len(found)}" if found else ""

    async def _pages(
        self, kind: str, path: str, query: dict[str, str], found: list[Raw]
    ) -> list[Raw] | None:
        """Put all objects into a list, which is emptied first; return it.

        Raises:
            ApiError: as `KubeApi.get` does; those of the pages before are in the list.
        """
        check, more = CHECKS["cluster.server"], ""
        before, fresh = list(found), list[Raw]()
        for _ in range(_PAGES):
            page = await self.api.get(path, query | ({"continue": more} if more else {}))
            try:
                answer = as_dict(orjson.loads(page))
            except orjson.JSONDecodeError:
                mend = "see that the kubeconfig's server is a Kubernetes API server"
                self.findings.append(check.warning(path, "the answer is no JSON", mend))
                return None
            fresh += [{**each, "kind": kind} for each in as_dicts(answer.get("items"))]
            # What an earlier attempt had more of is better than a beginning.
            found[:] = fresh if len(fresh) >= len(before) else before
            more = as_text(as_dict(answer.get("metadata")).get("continue"))
            if not more:
                return fresh
        saw, mend = f"more than {_PAGE * _PAGES} objects", f"nothing: {_PARTLY}"
        self.findings.append(check.warning(path, saw, mend))
        return fresh

    async def _some(self, kinds: Sequence[tuple[str, str]]) -> list[Raw] | None:
        """Return objects of several kinds; None if there is none of these kinds."""
        lists = await asyncio.gather(*(self.listed(kind, path) for kind, path in kinds))
        known = [each for each in lists if each is not None]
        return [raw for each in known for raw in each] if known else None

    async def _pods(self, daemonsets: Sequence[Raw] | None) -> list[Raw] | None:
        """Return the pods of exporters: a few of what may be very many."""
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
        """Return why pods of podgpu's are refused: asked only where there are too few of them."""
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
        """Return the Services beside podgpu; None if they can't be had somewhere."""
        ours = [each for each in daemonsets or () if exporter_kind(each) == "podgpu"]
        lists = [
            await self.listed("Service", f"/api/v1/namespaces/{quote(space, safe='')}/services")
            for space in dict.fromkeys(map(namespace_of, ours))
        ]
        if daemonsets is None or None in lists:
            return None
        return [service for each in lists for service in each or ()]
