"""The source `pods`: reports this node's pods, and the devices that schedulers assigned to them."""

import asyncio
import logging
from typing import Final

from pipeline.base.bounded_dict import set_last
from pipeline.component.contracts import SourceContext
from pipeline.kube.reflector import Reflector
from sources.pods.claim_details import ClaimReader
from sources.pods.options import Options
from sources.pods.pod_follower import PodFollower
from sources.pods.pod_mapper import PodMapper, PodOmissions
from sources.pods.resource_slices import SliceFollower
from sources.pods.timestamps import Timestamps

_TIMESTAMPS: Final = "timestamps"

_MAX_REMEMBERED: Final = 1024
"""How many warnings are remembered. After that, the oldest is forgotten and may be logged again."""


class PodWarnings:
    """Logs each unreadable annotation once for each pod, and dropped labels once for all pods."""

    def __init__(self, log: logging.Logger, limit: int) -> None:
        self._log = log
        self._limit = limit
        self._drop_logged = False
        self._warned: dict[tuple[str, str], None] = {}

    def report(self, left: PodOmissions) -> None:
        """Log the omissions of a pod that were not logged before."""
        if left.omitted and not self._drop_logged:
            self._drop_logged = True
            text = (
                "pod %s: %d labels or annotations are dropped: more than %d, or longer than 1 KiB; "
                "select fewer or raise max_labels (logged once for all pods)"
            )
            self._log.warning(text, left.pod, left.omitted, self._limit)
        for annotation, problem in left.problems.items():
            key = left.uid, annotation
            if key not in self._warned:
                set_last(self._warned, key, None, _MAX_REMEMBERED)
                text = "pod %s: annotation %s: %s; podgpu ignores this annotation"
                self._log.warning(text, left.pod, annotation, problem)


class PodsSource:
    """Watches the node's pods at the API server.

    Implements `pipeline.component.contracts.Source`. If the API server becomes unreachable, the
    last known pods stay in use for `max_age`, without confirmation.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Watch pods, ResourceClaims and ResourceSlices until cancelled.

        Raises:
            TransientError: there are no credentials.
        """
        options = self._options
        node = options.node or ctx.node
        # Kept over restarts of the source, so that unchanged pods are recognised as unchanged.
        timestamps = ctx.restart_state.setdefault(_TIMESTAMPS, Timestamps(ctx.clock.now))
        assert isinstance(timestamps, Timestamps)  # noqa: S101 - only this line writes it
        warnings = PodWarnings(ctx.log, options.max_labels)
        async with ctx.kube(options.kubeconfig) as api, asyncio.TaskGroup() as group:
            claims = ClaimReader(ctx, api if options.resource_claims else None, timestamps)
            follower = PodFollower(ctx, options, claims)
            pods = Reflector(
                api,
                "/api/v1/pods",
                {"fieldSelector": f"spec.nodeName={node}"},
                PodMapper(options, timestamps, warnings.report),
                follower,
                clock=ctx.clock,
            )
            group.create_task(pods.run())
            group.create_task(follower.read_claims())
            if options.resource_slices:
                group.create_task(SliceFollower(ctx, api, node, timestamps).run())
