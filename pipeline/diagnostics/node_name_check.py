"""Check `node.name` without the API server; the source `pods` checks the name against it."""

from typing import Final

from pipeline.component.findings import BOTH, Check, Finding
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
