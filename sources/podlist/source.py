"""The podlist source: says who holds which GPU, by koordinator's file."""

from functools import partial

from pipeline.component.claim_file_follower import follow
from pipeline.component.contracts import SourceContext
from sources.podlist.options import Options
from sources.podlist.pod_list_file import read_pod_list

_ABSENT = "see that its writer runs and that the folder is mounted"


class PodListSource:
    """Follows the file. Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Follow the file until cancelled."""
        options = self._options
        read = partial(read_pod_list, path=options.path, integers=options.integers)
        await follow(ctx, options, read, absent=_ABSENT)
