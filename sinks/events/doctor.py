"""Checks of `podgpu doctor` for the sink `events`: its permissions. No Event is written."""

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.api_permissions import Right, check_rights
from pipeline.diagnostics.context import DoctorContext
from sinks.events.options import Options


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `events.rbac` for the configured namespaces; for all if one of them is a pattern."""
    rights = [
        Right(verb, "events", namespace=namespace)
        for namespace in _namespaces(options)
        for verb in ("create", "patch")
    ]
    return await check_rights(ctx, options.kubeconfig, Check("events.rbac", FAILS), *rights)


def _namespaces(options: Options) -> tuple[str, ...]:
    patterns = options.namespaces
    return ("",) if any(set(pattern) & set("*?[") for pattern in patterns) else patterns
