"""The source `podlist`: emits claims from koordinator's pod list file."""

from functools import partial

from pipeline.component.claim_file_follower import follow
from pipeline.component.contracts import SourceContext
from sources.podlist.options import Options
from sources.podlist.pod_list_file import read_pod_list

_ABSENT = "check that its writer runs and that the folder is mounted"


class PodListSource:
    """Reads the pod list file on each change. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Follow changes of the file, and emit its claims, until cancelled."""
        options = self._options
        read = partial(read_pod_list, path=options.path, integers=options.integers)
        await follow(ctx, options, read, absent=_ABSENT)
