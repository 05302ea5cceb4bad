"""Check `node.name`: the configuration, and whether the API server has a Node of that name."""

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
    """Run the check `node.name`, as far as possible without the API server."""
    if ctx.config.node:
        return CHECK.ok("node", f"{ctx.config.node}, as configured")
    observed = f"not set, so podgpu uses the host name: {ctx.node}"
    if _IN_CLUSTER in ctx.environ:
        return CHECK.warning("node", f"{observed}; in a pod that is the name of the pod", FIX)
    return CHECK.ok("node", observed)


async def find_node(api: KubeApi, node: str) -> Finding | None:
    """Check whether a Node exists; return None if podgpu may not read it.

    Raises:
        ApiError: the server cannot be reached, or fails.
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
