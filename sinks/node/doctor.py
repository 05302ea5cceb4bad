"""Checks of `podgpu doctor` for the node sink: that its Node exists, and its rights on it."""

from typing import Final
from urllib.parse import quote

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.api_permissions import (
    ACCOUNT,
    FORBIDDEN,
    NOT_FOUND,
    Right,
    fix_for,
    review_rights,
)
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.node_name_check import CHECK, FIX
from sinks.node.options import Options

_NODES: Final = "/api/v1/nodes"


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `node.rbac`, and `node.name` by reading the Node of that name."""
    place, node = str(options.kubeconfig or ACCOUNT), options.node or ctx.node
    check = Check("node.rbac", FAILS)
    try:
        async with ctx.kube(options.kubeconfig) as api:
            return [
                *await _named(api, node),
                *await review_rights(
                    api,
                    check,
                    place,
                    Right("get", "nodes", name=node),
                    Right("patch", "nodes", name=node),
                ),
            ]
    except TransientError as error:
        return [check.failure(place, str(error), fix_for(error))]


async def _named(api: KubeApi, node: str) -> list[Finding]:
    """Return whether the Node exists; nothing if podgpu may not read it (see `node.rbac`)."""
    path = f"{_NODES}/{quote(node, safe='')}"
    try:
        await api.get(path, {})
    except ApiError as error:
        if error.status == FORBIDDEN:
            return []
        if error.status == NOT_FOUND:
            return [CHECK.failure(f"GET {path}", f"there is no Node named {node}", FIX)]
        raise
    return [CHECK.ok(f"GET {path}", "is a Node")]
