"""Checks of `podgpu doctor` for the node sink: that its Node exists, and its rights on it."""

from pipeline.base.errors import TransientError
from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.api_permissions import ACCOUNT, Right, fix_for, review_rights
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.node_name_check import find_node
from sinks.node.options import Options


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `node.rbac`, and `node.name` by reading the Node of that name."""
    place, node = str(options.kubeconfig or ACCOUNT), options.node or ctx.node
    check = Check("node.rbac", FAILS)
    try:
        async with ctx.kube(options.kubeconfig) as api:
            found = await find_node(api, node)
            rights = [Right(verb, "nodes", name=node) for verb in ("get", "patch")]
            reviewed = await review_rights(api, check, place, *rights)
            return reviewed if found is None else [found, *reviewed]
    except TransientError as error:
        return [check.failure(place, str(error), fix_for(error))]
