"""The source `pods`: reports this node's pods, and the devices that schedulers assigned to them."""

import asyncio

from pipeline.component.contracts import SourceContext
from pipeline.kube.reflector import Reflector
from sources.pods.options import Options
from sources.pods.pod_follower import PodFollower
from sources.pods.pod_mapper import PodMapper
from sources.pods.pod_warnings import PodWarnings
from sources.pods.resource_claims import ClaimReader
from sources.pods.slice_follower import SliceFollower
from sources.pods.timestamps import Timestamps

_TIMESTAMPS = "timestamps"


class PodsSource:
    """Watches the node's pods at the API server.

    Implements `pipeline.component.contracts.Source`. If the API server becomes unreachable, the
    last known pods stay in use, unconfirmed, until they are too old.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Watch the pods until cancelled.

        Raises:
            TransientError: there are no credentials.
        """
        options = self._options
        node = options.node or ctx.node
        # Kept over restarts of the source, so that unchanged pods are recognised as unchanged.
        timestamps = ctx.restart_state.setdefault(_TIMESTAMPS, Timestamps(ctx.clock.now))
        assert isinstance(timestamps, Timestamps)  # noqa: S101 - only this line writes it
        complaints = PodWarnings(ctx.log, options.max_labels)
        async with ctx.kube(options.kubeconfig) as api, asyncio.TaskGroup() as group:
            claims = ClaimReader(ctx, api, timestamps) if options.resource_claims else None
            follower = PodFollower(ctx, options, claims)
            pods = Reflector(
                api,
                "/api/v1/pods",
                {"fieldSelector": f"spec.nodeName={node}"},
                PodMapper(options, timestamps, complaints.report),
                follower,
                clock=ctx.clock,
            )
            group.create_task(pods.run())
            if claims is not None:
                group.create_task(follower.read_claims(claims))
            if options.resource_slices:
                group.create_task(SliceFollower(ctx, api, node, timestamps).run())
