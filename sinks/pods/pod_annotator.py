"""Reads and changes a pod, without overwriting values of other programs."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi, SinkContext
from pipeline.kube.api_errors import is_admission_denial
from pipeline.kube.api_sink import counted
from pipeline.kube.json_access import as_dict, parsed_object
from sinks.pods.annotation_decision import NO_IDENTITY, Decision, decide
from sinks.pods.held_devices import DesiredAnnotations, PodRef
from sinks.pods.skip_reports import SkipReports

_ATTEMPTS: Final = 4
"""How often a pod is read and changed without a pause, if other programs change it meanwhile."""


class Annotator:
    """Updates the annotations of one pod at a time.

    Args:
        ctx: context of the sink.
        stopping: returns whether no new request may begin.
    """

    def __init__(self, ctx: SinkContext, stopping: Callable[[], bool]) -> None:
        self._ctx = ctx
        self._stopping = stopping
        self._reporter = SkipReports(ctx)

    async def update_pod(self, api: KubeApi, place: PodRef, what: DesiredAnnotations) -> bool:
        """Write what a pod holds into its annotations, unless another program's value is there.

        Args:
            api: session with the API server.
            place: namespace and name of the pod.
            what: the desired annotations.

        Returns:
            Whether the pod is done: its annotations are right, or it must not be changed. False if
            it does not exist, or cannot be changed for a reason of its own, and has to be tried
            again.

        Raises:
            ApiError: the server refused the request, or could not be reached.
            TransientError: the response is not a pod.
        """
        for _ in range(_ATTEMPTS):
            try:
                if (decision := await self._read_and_decide(api, place, what)).changes is None:
                    return True
                if self._stopping():
                    return False
                return await self._patch(api, place, decision)
            except ApiError as error:
                match error.status:
                    case HTTPStatus.CONFLICT:
                        continue
                    case HTTPStatus.NOT_FOUND:
                        return False
                    case _:
                        raise
        return False

    async def _read_and_decide(
        self, api: KubeApi, place: PodRef, what: DesiredAnnotations
    ) -> Decision:
        body = await counted(self._ctx.meter, "get", api.get(place.path, {}))
        decision = decide(parsed_object(body), what, self._ctx.node)
        if decision.reason == NO_IDENTITY:
            raise TransientError(
                f"GET {place.path}: the response is not a Pod; check that the address is that of "
                "an API server and that no proxy answers in its place"
            )
        self._reporter.on_decision(place, what, decision)
        return decision

    async def _patch(self, api: KubeApi, place: PodRef, decision: Decision) -> bool:
        """Send the change; return whether the response contains it."""
        changes = decision.changes or {}
        try:
            body = await counted(self._ctx.meter, "patch", api.patch(place.path, changes))
        except ApiError as error:
            # A denial of a webhook, with any status, concerns only this pod.
            if is_admission_denial(error):
                self._reporter.on_refusal("denied", place, decision.keys, error)
            elif error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                self._reporter.on_refusal("invalid", place, decision.keys, error)
            else:
                raise
            return False
        present, written = _annotations(parsed_object(body)), _annotations(changes)
        if any(present.get(key) != value for key, value in written.items()):
            self._reporter.on_refusal("dropped", place, decision.keys)
            return False
        self._ctx.log.debug("pod %s: wrote %s", place, ", ".join(decision.keys))
        return True


def _annotations(pod: Any) -> dict[str, Any]:
    return as_dict(as_dict(as_dict(pod).get("metadata")).get("annotations"))
