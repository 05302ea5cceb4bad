"""What `podgpu doctor` looks at for the checkpoint source: the file."""

from functools import partial

from pipeline.claiming import matcher
from pipeline.doctor.checks import CHECKS
from pipeline.doctor.claimfiles import look
from pipeline.doctor.context import DoctorContext, in_thread
from pipeline.doctor.distributions import elsewhere_than
from pipeline.doctor.findings import Finding
from sources.checkpoint.document import read_checkpoint
from sources.checkpoint.options import Options


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `checkpoint.file`."""
    read = partial(read_checkpoint, path=options.path, wanted=matcher(options.resources))
    check = CHECKS["checkpoint.file"]
    see = partial(
        look,
        check,
        options,
        read,
        writer="the kubelet",
        clock=ctx.clock,
        elsewhere=f"another root of the kubelet's ({elsewhere_than(options.path)})",
    )
    finding, _ = await in_thread(see)
    return [finding]
