"""Check `node.name`: whether a node name is configured, and whether a Node has this name."""

from typing import Final
from urllib.parse import quote

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics.api_permissions import FORBIDDEN, NOT_FOUND
from pipeline.diagnostics.context import DoctorContext

CHECK: Final = Check("node.name", BOTH)
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
FIX: Final = (
    "set the environment variable NODE_NAME from the field spec.nodeName, and node: "
    "${NODE_NAME:-} in the configuration file"
)


def examine(ctx: DoctorContext) -> Finding:
    """Run the part of the check `node.name` that needs no API server."""
    if ctx.config.node:
        return CHECK.ok("node", f"{ctx.config.node}, as configured")
    observed = f"not set, so podgpu uses the host name: {ctx.node}"
    if _IN_CLUSTER in ctx.environ:
        return CHECK.warning("node", f"{observed}; in a pod that is the name of the pod", FIX)
    return CHECK.ok("node", observed)


async def find_node(api: KubeApi, node: str) -> Finding | None:
    """Return whether a Node exists, as a finding; None if podgpu may not read the Node.

    Raises:
        ApiError: the request fails for another reason.
    """
    path = f"/api/v1/nodes/{quote(node, safe='')}"
    try:
        await api.get(path, {})
    except ApiError as error:
        if error.status == FORBIDDEN:
            return None
        if error.status == NOT_FOUND:
            return CHECK.failure(f"GET {path}", f"no Node is named {node}", FIX)
        raise
    return CHECK.ok(f"GET {path}", "is a Node")
