"""What `podgpu doctor` looks at for the events sink: its rights. No Event is made."""

from pipeline.doctor.checks import CHECKS
from pipeline.doctor.context import DoctorContext
from pipeline.doctor.findings import Finding
from pipeline.doctor.rights import Right, examined
from sinks.events.options import Options


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `events.rbac`: for all namespaces, or for those alone that are named."""
    rights = [
        Right(verb, "events", namespace=namespace)
        for namespace in _namespaces(options)
        for verb in ("create", "patch")
    ]
    return await examined(ctx, options.kubeconfig, CHECKS["events.rbac"], *rights)


def _namespaces(options: Options) -> tuple[str, ...]:
    patterns = options.namespaces
    return ("",) if any(set(pattern) & set("*?[") for pattern in patterns) else patterns
