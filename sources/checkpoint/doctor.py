"""The check of `podgpu doctor` for the source `checkpoint`: the kubelet's checkpoint."""

from functools import partial

from pipeline.allocations.gpu_resources import GpuResources
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics.claim_file_check import check_file
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.kubelet_roots import other_roots
from sources.checkpoint.checkpoint_file import read_checkpoint
from sources.checkpoint.options import Options


def examine(options: Options, ctx: DoctorContext) -> Finding:
    """Run the check `checkpoint.file`."""
    read = partial(read_checkpoint, path=options.path, resources=GpuResources(options.resources))
    return check_file(
        Check("checkpoint.file", BOTH),
        options.path,
        options.max_size,
        read,
        writer="the kubelet",
        clock=ctx.clock,
        elsewhere=f"another root of the kubelet ({other_roots(options.path)})",
    )
