"""Checks of `podgpu doctor` for the pods sink: its rights. It reads and changes no pod."""

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.api_permissions import Right, check_rights
from pipeline.diagnostics.context import DoctorContext
from sinks.pods.options import Options


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `pods.patch`."""
    rights = (Right("get", "pods"), Right("patch", "pods"))
    return await check_rights(ctx, options.kubeconfig, Check("pods.patch", FAILS), *rights)
