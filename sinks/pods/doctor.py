"""What `podgpu doctor` looks at for the pods sink: its rights. No pod is read or changed."""

from pipeline.doctor.checks import CHECKS
from pipeline.doctor.context import DoctorContext
from pipeline.doctor.findings import Finding
from pipeline.doctor.rights import Right, examined
from sinks.pods.options import Options


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `pods.patch`."""
    rights = (Right("get", "pods"), Right("patch", "pods"))
    return await examined(ctx, options.kubeconfig, CHECKS["pods.patch"], *rights)
