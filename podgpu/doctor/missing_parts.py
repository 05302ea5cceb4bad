"""Say what a machine lacks as a whole, so that its findings need not be read one by one."""

from collections.abc import Sequence
from typing import Final

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.kubelet_roots import IN_CLUSTER, ROOTS

_OF_KUBERNETES: Final = ("podresources", "checkpoint", "pods")
"""Kinds of sources that read what Kubernetes has on a node."""


def missing_parts(ctx: DoctorContext, findings: Sequence[Finding]) -> str:
    """Return a sentence if this machine has no driver; else empty.

    In a container, folders of the host may be missing although the host has them. So nothing is
    said about Kubernetes there.

    Args:
        ctx: the context of the checks.
        findings: the findings of all checks.
    """
    failed = any(one.check == "nvml.driver" and one.verdict is Verdict.FAILURE for one in findings)
    if not failed or (ctx.roots.proc / "driver" / "nvidia" / "version").exists():
        return ""
    lacks_kubernetes = (
        any(map(ctx.has, _OF_KUBERNETES))
        and IN_CLUSTER not in ctx.environ
        and not any((ctx.roots.host / root).exists() for root, _ in ROOTS)
    )
    what = "no NVIDIA driver and no Kubernetes" if lacks_kubernetes else "no NVIDIA driver"
    return f"{what} on this machine: podgpu run has no GPU to read here; podgpu demo needs none"
