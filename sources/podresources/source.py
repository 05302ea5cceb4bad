"""The source `podresources`: reports the holders of GPUs that the kubelet lists."""

import asyncio
from collections.abc import Iterable

from pipeline.allocations.gpu_resources import DEFAULT_DRIVERS, GpuNames, GpuResources
from pipeline.component.contracts import SourceContext
from sources.podresources.claim_report import KubeletReport
from sources.podresources.options import Options
from sources.podresources.responses import Selection
from sources.podresources.socket_client import SocketClient


class PodResourcesSource:
    """Queries the kubelet at an interval, and immediately when another source hints at a change.

    Implements `pipeline.component.contracts.Source`. Errors of the sockets do not end `run`: the
    last responses stay in use for `max_age`, without confirmation.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Query the kubelet until cancelled."""
        options = self._options
        sockets = tuple(dict.fromkeys(options.sockets))
        selection = Selection(
            GpuResources(options.resources, ctx.log), GpuNames(options.drivers, DEFAULT_DRIVERS)
        )
        report = KubeletReport(ctx, sockets, options.max_age)
        clients = [SocketClient(path, options, selection, ctx, report) for path in sockets]
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.run())
            tasks.create_task(_follow_hints(ctx, clients))


async def _follow_hints(ctx: SourceContext, clients: Iterable[SocketClient]) -> None:
    async for hint in ctx.hints():
        # Ignore hints that only this source's own claims, or the end of a pod, have caused.
        if hint.pods or hint.sources - {ctx.name}:
            for client in clients:
                client.request_soon()
