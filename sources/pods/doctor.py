"""Checks of the source `pods`: API server, RBAC permissions, node name, duplicate exporters."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import orjson

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics import duplicate_daemons, node_name_check
from pipeline.diagnostics.api_permissions import (
    ACCOUNT,
    FORBIDDEN,
    Right,
    fix_for,
    is_allowed,
    try_list,
    try_watch,
)
from pipeline.diagnostics.context import DoctorContext
from pipeline.kube.json_access import as_dict, as_dicts, as_text, controller_of
from sources.pods.options import Options

_SERVER: Final = Check("pods.server", BOTH)

_PODS: Final = "/api/v1/pods"
_GROUP: Final = "resource.k8s.io"
_DRA_RIGHTS: Final[Mapping[Right, str]] = {
    Right("list", "resourceslices", _GROUP): "resource_slices",
    Right("watch", "resourceslices", _GROUP): "resource_slices",
    Right("get", "resourceclaims", _GROUP): "resource_claims",
}
"""Permissions that the source needs only if an option is set, each with the option."""

_NAME: Final = "app.kubernetes.io/name"
_COMPONENT: Final = "app.kubernetes.io/component"
_DAEMON: Final = "node"
"""Value of the component label that the chart sets on the daemon's pods."""
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
    found: list[Finding] = []
    refused: list[str] = []
    rbac = Check("pods.rbac", BOTH)
    for verb, attempt in (("list", try_list), ("watch", try_watch)):
        error = await attempt(api, _PODS, query)
        if error is not None and error.status != FORBIDDEN:
            return [*found, _server(error, place)]
        found = found or [_SERVER.ok(place, "responds, and accepts the credentials")]
        if error is not None:
            right = Right(verb, "pods")
            refused.append(verb)
            found.append(rbac.failure(place, f"may not {right}", right.fix()))
    granted = [Right("list", "pods"), Right("watch", "pods")]
    for right, option in _DRA_RIGHTS.items():
        if not getattr(options, option):
            continue
        granted.append(right)
        if not await is_allowed(api, right):
            fix = f"{right.fix()}; or set {option}: false if DRA is not used"
            found.append(rbac.warning(place, f"may not {right}", fix))
    if all(each.check != rbac.id for each in found):
        found.append(rbac.ok(place, ", ".join(map(str, granted))))
    return found if "list" in refused else [*found, *await _pods(api, node, ctx)]


def _server(error: TransientError, place: str) -> Finding:
    return _SERVER.failure(place, str(error), fix_for(error))


async def _pods(api: KubeApi, node: str, ctx: DoctorContext) -> list[Finding]:
    """Run the checks `node.name` and `twins` with the pods of the node at the API server."""
    query = {"fieldSelector": f"spec.nodeName={node}"}
    place = f"GET {_PODS}?fieldSelector=spec.nodeName={node}"
    try:
        pods = as_dicts(as_dict(orjson.loads(await api.get(_PODS, query))).get("items"))
    except (ApiError, orjson.JSONDecodeError) as error:
        return [node_name_check.CHECK.skip(place, str(error))]
    return [await _name(api, len(pods), node, place), _twins(pods, ctx, place)]


async def _name(api: KubeApi, count: int, node: str, place: str) -> Finding:
    """Check the node name: whether pods run on a node of this name, else whether a Node has it."""
    check = node_name_check.CHECK
    if count:
        return check.ok(place, f"{count} pods run on it")
    with suppress(ApiError):
        if (found := await node_name_check.find_node(api, node)) is not None:
            return found
    observed = f"no pod runs on a Node named {node}: the Node has none, or does not exist"
    fix = f"see kubectl get node {node}; if it does not exist, {node_name_check.FIX}"
    return check.warning(place, observed, fix)


def _twins(pods: list[dict[str, object]], ctx: DoctorContext, place: str) -> Finding:
    check, found = duplicate_daemons.CHECK, dict[tuple[str, str], list[str]]()
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
    for several in counted:
        if len(several) > 1:
            observed = f"an update is in progress ({', '.join(sorted(several))})"
            return check.ok(place, f"{observed}: the old pod ends when the new one is ready")
    return check.ok(place, "no second GPU exporter runs on this node")


def _daemonset(metadata: dict[str, object]) -> str:
    """Return the UID of the DaemonSet that owns a pod; empty if no DaemonSet does.

    A DaemonSet has two pods on a node only during an update. Other owners may permanently have
    several pods on a node.
    """
    owner = controller_of(metadata)
    return as_text(owner.get("uid")) if owner.get("kind") == "DaemonSet" else ""
