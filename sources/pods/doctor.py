"""What `podgpu doctor` looks at for the pods source: the API server, rights, the node's name."""

from typing import Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import Finding
from pipeline.diagnostics import duplicate_daemons
from pipeline.diagnostics.api_permissions import (
    ACCOUNT,
    FORBIDDEN,
    NOT_FOUND,
    Right,
    fix_for,
    try_list,
    try_watch,
)
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.node_name_check import FIX as NAME_MEND
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from sources.pods.options import Options

_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"
_GROUP: Final = "resource.k8s.io"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_EXPECTED: Final = frozenset({FORBIDDEN, NOT_FOUND})
_NAME: Final = "app.kubernetes.io/name"
_COMPONENT: Final = "app.kubernetes.io/component"
_DAEMON: Final = "node"
"""What the chart calls the daemon, beside its other parts."""
_EXPORTERS: Final = ("podgpu", "dcgm-exporter", "nvidia-dcgm-exporter")


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `pods.server`, `pods.rbac`, `node.name` and `twins`."""
    place = str(options.kubeconfig or ACCOUNT)
    try:
        async with ctx.kube(options.kubeconfig) as api:
            return await _asked(api, options, ctx, place)
    except TransientError as error:
        return [_server(error, place)]


async def _asked(api: KubeApi, options: Options, ctx: DoctorContext, place: str) -> list[Finding]:
    node = options.node or ctx.node
    query = {"fieldSelector": f"spec.nodeName={node}"}
    error = await try_list(api, _PODS, query)
    if error is not None and error.status != FORBIDDEN:
        return [_server(error, place)]
    found = [CHECKS["pods.server"].ok(place, "answers, and accepts the credentials")]
    refused = [] if error is None else [Right("list", "pods")]
    watching = await try_watch(api, _PODS, query)
    if watching is not None:
        if watching.status != FORBIDDEN:
            return [*found, _server(watching, place)]
        refused.append(Right("watch", "pods"))
    check = CHECKS["pods.rbac"]
    found += [check.failure(place, f"may not {each}", each.fix) for each in refused]
    slices = await _slices(api, query, place) if options.resource_slices else []
    found += slices
    claims = await _claims(api, place) if options.resource_claims else []
    found += claims
    if not refused and all(each.check != check.id for each in slices + claims):
        found.append(check.ok(place, "list, watch pods" + _besides(options)))
    if error is None:
        found += await _pods(api, node, ctx)
    return found


def _besides(options: Options) -> str:
    slices = "; list, watch resourceslices, or the cluster has none"
    claims = "; get resourceclaims, or the cluster has none"
    return slices * options.resource_slices + claims * options.resource_claims


def _server(error: TransientError, place: str) -> Finding:
    return CHECKS["pods.server"].failure(place, str(error), fix_for(error))


async def _slices(api: KubeApi, query: dict[str, str], place: str) -> list[Finding]:
    """Return a warning for each verb on ResourceSlices that is missing, or that they can't be had.

    A server answers 403 before it tells whether there is such a version, so that the newest one's
    answer counts where it is no 404.
    """
    refused = []
    for version in _VERSIONS:
        path = f"/apis/{_GROUP}/{version}/resourceslices"
        listing = await try_list(api, path, query)
        if listing is not None and listing.status == NOT_FOUND:
            continue
        # Who doesn't answer the one won't answer the other, and is waited for each time.
        silent = listing is not None and listing.status == 0
        watching = None if silent else await try_watch(api, path, query)
        answers = (("list", listing), ("watch", watching))
        refused = [verb for verb, error in answers if error and error.status == FORBIDDEN]
        failed = [error for _, error in answers if error and error.status not in _EXPECTED]
        if failed:
            mend = f"{fix_for(failed[0])}; until then claims of a DRA driver's are not told"
            return [CHECKS["pods.server"].warning(path, str(failed[0]), mend)]
        break
    rights = [Right(verb, "resourceslices", _GROUP) for verb in refused]
    return [
        CHECKS["pods.rbac"].warning(
            place, f"may not {each}", f"{each.fix}; or set resource_slices: false without DRA"
        )
        for each in rights
    ]


async def _claims(api: KubeApi, place: str) -> list[Finding]:
    """Return a warning if a ResourceClaim may not be read: one that there need not be."""
    for version in _VERSIONS:
        path = f"/apis/{_GROUP}/{version}/namespaces/default/resourceclaims/podgpu-doctor"
        error = await try_list(api, path, {})
        if error is not None and error.status == FORBIDDEN:
            right = Right("get", "resourceclaims", _GROUP)
            mend = f"{right.fix}; or set resource_claims: false without DRA"
            return [CHECKS["pods.rbac"].warning(place, f"may not {right}", mend)]
        if error is None or error.status != NOT_FOUND:
            break
    return []


async def _pods(api: KubeApi, node: str, ctx: DoctorContext) -> list[Finding]:
    """Check `node.name` and `twins` by the pods that the server has for the node."""
    query = {"fieldSelector": f"spec.nodeName={node}"}
    place = f"GET {_PODS}?fieldSelector=spec.nodeName={node}"
    try:
        pods = as_dicts(as_dict(orjson.loads(await api.get(_PODS, query))).get("items"))
    except (ApiError, orjson.JSONDecodeError) as error:
        return [CHECKS["node.name"].skip(place, str(error))]
    return [await _name(api, len(pods), node, place), _twins(pods, ctx, place)]


async def _name(api: KubeApi, count: int, node: str, place: str) -> Finding:
    """Tell by the pods, else by the Node itself, which podgpu may have no right to read."""
    check = CHECKS["node.name"]
    if count:
        return check.ok(place, f"{count} pods are on it")
    path = f"{_NODES}/{quote(node, safe='')}"
    try:
        await api.get(path, {})
    except ApiError as error:
        if error.status == NOT_FOUND:
            return check.failure(f"GET {path}", f"there is no Node named {node}", NAME_MEND)
        saw = f"not one pod is on a Node named {node}: it may be empty, or none has that name"
        return check.warning(
            place, saw, f"see kubectl get node {node}; if there is none, {NAME_MEND}"
        )
    return check.ok(f"GET {path}", "is a Node, without any pod")


def _twins(pods: list[dict[str, object]], ctx: DoctorContext, place: str) -> Finding:
    check, found = CHECKS["twins"], dict[tuple[str, str], list[str]]()
    for pod in pods:
        metadata = as_dict(pod.get("metadata"))
        labels = as_dict(metadata.get("labels"))
        if as_text(labels.get(_COMPONENT)) not in ("", _DAEMON):
            continue
        kind = as_text(labels.get(_NAME))
        ended = as_text(as_dict(pod.get("status")).get("phase")) in {"Succeeded", "Failed"}
        # What is being deleted makes room for its successor.
        if kind in _EXPORTERS and not ended and not metadata.get("deletionTimestamp"):
            name = f"{as_text(metadata.get('namespace'))}/{as_text(metadata.get('name'))}"
            found.setdefault((kind, _daemonset(metadata) or name), []).append(name)
    counted = [pods for (kind, _), pods in found.items() if kind == "podgpu" or not ctx.has("dcgm")]
    if len(counted) > 1:
        names = ", ".join(sorted(name for pods in counted for name in pods))
        saw = f"{len(counted)} exporters of GPUs on this node: {names}"
        return check.warning(place, saw, duplicate_daemons.FIX)
    updated = next((", ".join(sorted(pods)) for pods in counted if len(pods) > 1), "")
    if updated:
        saw = f"an update is under way ({updated}): the old pod goes when the new one is ready"
        return check.ok(place, saw)
    return check.ok(place, "no second exporter of GPUs on this node")


def _daemonset(metadata: dict[str, object]) -> str:
    """Return the uid of the DaemonSet that made a pod; empty if none did.

    It has two pods on a node for as long as it is updated, and at no other time; whoever else
    makes pods may have several there for good.
    """
    for reference in as_dicts(metadata.get("ownerReferences")):
        if reference.get("controller") is True and reference.get("kind") == "DaemonSet":
            return as_text(reference.get("uid"))
    return ""
