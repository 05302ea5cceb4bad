"""Whether the node's name can be the Node's; the pods source asks the API server itself."""

from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext

_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
FIX: Final = (
    "set the variable NODE_NAME from the field spec.nodeName, and node: ${NODE_NAME:-} in the file"
)


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Check `node.name`, as far as it can be told without the API server."""
    check = CHECKS["node.name"]
    if ctx.config.node:
        return [check.ok("node", f"{ctx.config.node}, as configured")]
    saw = f"empty, so the name of the host is taken: {ctx.node}"
    if _IN_CLUSTER in ctx.environ:
        return [check.warning("node", f"{saw}; in a pod that is the pod's", FIX)]
    return [check.ok("node", saw)]
