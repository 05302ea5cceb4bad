"""Checks of the source `pods`: the API server, RBAC permissions, node name, second exporters."""

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
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.node_name_check import FIX as NAME_FIX
from pipeline.diagnostics.shared_checks import DUPLICATE_DAEMONS, NODE_NAME
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from sources.pods.checks import CHECKS
from sources.pods.options import Options

_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"
_GROUP: Final = "resource.k8s.io"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_EXPECTED: Final = frozenset({FORBIDDEN, NOT_FOUND})
_NAME: Final = "app.kubernetes.io/name"
_COMPONENT: Final = "app.kubernetes.io/component"
_DAEMON: Final = "node"
"""The chart's component label of the daemon; its other parts have other values."""
_EXPORTERS: Final = ("podgpu", "dcgm-exporter", "nvidia-dcgm-exporter")


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Run the checks `pods.server`, `pods.rbac`, `node.name` and `twins`."""
    place = str(options.kubeconfig or ACCOUNT)
    try:
        async with ctx.kube(options.kubeconfig) as api:
            return await _check_server(api, options, ctx, place)
    except TransientError as error:
        return [_server(error, place)]


async def _check_server(
    api: KubeApi, options: Options, ctx: DoctorContext, place: str
) -> list[Finding]:
    node = options.node or ctx.node
    query = {"fieldSelector": f"spec.nodeName={node}"}
    error = await try_list(api, _PODS, query)
    if error is not None and error.status != FORBIDDEN:
        return [_server(error, place)]
    found = [CHECKS["pods.server"].ok(place, "responds, and accepts the credentials")]
    refused = [] if error is None else [Right("list", "pods")]
    watch_error = await try_watch(api, _PODS, query)
    if watch_error is not None:
        if watch_error.status != FORBIDDEN:
            return [*found, _server(watch_error, place)]
        refused.append(Right("watch", "pods"))
    check = CHECKS["pods.rbac"]
    found += [check.failure(place, f"may not {each}", each.fix) for each in refused]
    slices = await _slices(api, query, place) if options.resource_slices else []
    found += slices
    claims = await _claims(api, place) if options.resource_claims else []
    found += claims
    if not refused and all(each.check != check.id for each in slices + claims):
        found.append(check.ok(place, "list, watch pods" + _further_rights(options)))
    if error is None:
        found += await _pods(api, node, ctx)
    return found


def _further_rights(options: Options) -> str:
    slices = "; list, watch resourceslices, or the cluster has none"
    claims = "; get resourceclaims, or the cluster has none"
    return slices * options.resource_slices + claims * options.resource_claims


def _server(error: TransientError, place: str) -> Finding:
    return CHECKS["pods.server"].failure(place, str(error), fix_for(error))


async def _slices(api: KubeApi, query: dict[str, str], place: str) -> list[Finding]:
    """Return a warning for each missing permission on ResourceSlices, or for a failed request.

    A server returns 403 without checking whether it has the API version. So the newest version
    that does not return 404 decides.
    """
    refused = []
    for version in _VERSIONS:
        path = f"/apis/{_GROUP}/{version}/resourceslices"
        list_error = await try_list(api, path, query)
        if list_error is not None and list_error.status == NOT_FOUND:
            continue
        # If the server does not respond to the list, do not wait for the watch too.
        silent = list_error is not None and list_error.status == 0
        watch_error = None if silent else await try_watch(api, path, query)
        errors = (("list", list_error), ("watch", watch_error))
        refused = [verb for verb, error in errors if error and error.status == FORBIDDEN]
        failed = [error for _, error in errors if error and error.status not in _EXPECTED]
        if failed:
            fix = f"{fix_for(failed[0])}; until then claims on DRA devices are not reported"
            return [CHECKS["pods.server"].warning(path, str(failed[0]), fix)]
        break
    rights = [Right(verb, "resourceslices", _GROUP) for verb in refused]
    return [
        CHECKS["pods.rbac"].warning(
            place,
            f"may not {each}",
            f"{each.fix}; or set resource_slices: false if DRA is not used",
        )
        for each in rights
    ]


async def _claims(api: KubeApi, place: str) -> list[Finding]:
    """Return a warning if ResourceClaims may not be read; the one it reads need not exist."""
    for version in _VERSIONS:
        path = f"/apis/{_GROUP}/{version}/namespaces/default/resourceclaims/podgpu-doctor"
        error = await try_list(api, path, {})
        if error is not None and error.status == FORBIDDEN:
            right = Right("get", "resourceclaims", _GROUP)
            fix = f"{right.fix}; or set resource_claims: false if DRA is not used"
            return [CHECKS["pods.rbac"].warning(place, f"may not {right}", fix)]
        if error is None or error.status != NOT_FOUND:
            break
    return []


async def _pods(api: KubeApi, node: str, ctx: DoctorContext) -> list[Finding]:
    """Run the checks `node.name` and `twins` on the node's pods at the API server."""
    query = {"fieldSelector": f"spec.nodeName={node}"}
    place = f"GET {_PODS}?fieldSelector=spec.nodeName={node}"
    try:
        pods = as_dicts(as_dict(orjson.loads(await api.get(_PODS, query))).get("items"))
    except (ApiError, orjson.JSONDecodeError) as error:
        return [NODE_NAME.skip(place, str(error))]
    return [await _name(api, len(pods), node, place), _twins(pods, ctx, place)]


async def _name(api: KubeApi, count: int, node: str, place: str) -> Finding:
    """Check the node name by its pods, else by the Node object, which podgpu may not read."""
    check = NODE_NAME
    if count:
        return check.ok(place, f"{count} pods run on it")
    path = f"{_NODES}/{quote(node, safe='')}"
    try:
        await api.get(path, {})
    except ApiError as error:
        if error.status == NOT_FOUND:
            return check.failure(f"GET {path}", f"no Node is named {node}", NAME_FIX)
        observed = f"no pod runs on a Node named {node}: the Node has none, or does not exist"
        return check.warning(
            place, observed, f"see kubectl get node {node}; if it does not exist, {NAME_FIX}"
        )
    return check.ok(f"GET {path}", "the Node exists, without pods")


def _twins(pods: list[dict[str, object]], ctx: DoctorContext, place: str) -> Finding:
    check, found = DUPLICATE_DAEMONS, dict[tuple[str, str], list[str]]()
    for pod in pods:
        metadata = as_dict(pod.get("metadata"))
        labels = as_dict(metadata.get("labels"))
        if as_text(labels.get(_COMPONENT)) not in ("", _DAEMON):
            continue
        kind = as_text(labels.get(_NAME))
        ended = as_text(as_dict(pod.get("status")).get("phase")) in {"Succeeded", "Failed"}
        # A pod that is being deleted may be replaced already; ignore it.
        if kind in _EXPORTERS and not ended and not metadata.get("deletionTimestamp"):
            name = f"{as_text(metadata.get('namespace'))}/{as_text(metadata.get('name'))}"
            found.setdefault((kind, _daemonset(metadata) or name), []).append(name)
    counted = [pods for (kind, _), pods in found.items() if kind == "podgpu" or not ctx.has("dcgm")]
    if len(counted) > 1:
        names = ", ".join(sorted(name for pods in counted for name in pods))
        observed = f"{len(counted)} GPU exporters run on this node: {names}"
        return check.warning(place, observed, duplicate_daemons.FIX)
    updated = next((", ".join(sorted(pods)) for pods in counted if len(pods) > 1), "")
    if updated:
        observed = (
            f"an update is in progress ({updated}): the old pod ends when the new one is ready"
        )
        return check.ok(place, observed)
    return check.ok(place, "no second GPU exporter runs on this node")


def _daemonset(metadata: dict[str, object]) -> str:
    """Return the UID of the DaemonSet that owns a pod; empty if none does.

    A DaemonSet has two pods on a node only during an update. Other owners may have several pods
    there permanently.
    """
    for reference in as_dicts(metadata.get("ownerReferences")):
        if reference.get("controller") is True and reference.get("kind") == "DaemonSet":
            return as_text(reference.get("uid"))
    return ""
