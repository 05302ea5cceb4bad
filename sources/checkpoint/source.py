"""The source `checkpoint`: reports the holders of GPUs from the kubelet's checkpoint."""

from functools import partial

from pipeline.allocations.gpu_resources import GpuResources
from pipeline.component.claim_file_follower import follow
from pipeline.component.contracts import SourceContext
from sources.checkpoint.checkpoint_file import read_checkpoint
from sources.checkpoint.options import Options

_ABSENT = (
    "mount the kubelet's device-plugins folder from the host, "
    "and set `path` if the kubelet has another root"
)


class CheckpointSource:
    """Watches the checkpoint. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Watch the checkpoint, and emit its claims, until cancelled."""
        options = self._options
        resources = GpuResources(options.resources, ctx.log)
        read = partial(read_checkpoint, path=options.path, resources=resources)
        await follow(ctx, options, read, absent=_ABSENT, follow_hints=True)
