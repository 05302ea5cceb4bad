"""Reads a pod and changes it, so that no other writer's value is lost."""

from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any, Final

import orjson

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi, SinkContext
from pipeline.kube.api_errors import is_admission_denial
from pipeline.kube.json_access import as_dict
from sinks.pods.annotation_decision import NO_IDENTITY, Decision, decide
from sinks.pods.held_devices import DesiredAnnotations, PodRef
from sinks.pods.skip_reports import DecisionLog

_ATTEMPTS: Final = 4
"""How often a pod is read and changed in one go, while others change it in between."""


class Annotator:
    """Sees to one pod at a time.

    Args:
        ctx: of the sink.
        stopping: whether no request is to begin any more.
    """

    def __init__(self, ctx: SinkContext, stopping: Callable[[], bool]) -> None:
        self._ctx = ctx
        self._stopping = stopping
        self._reporter = DecisionLog(ctx)

    def retain(self, places: Collection[PodRef]) -> None:
        """Note which pods there are: of others nothing needs to be remembered."""
        self._reporter.retain(places)

    async def update_pod(self, api: KubeApi, place: PodRef, what: DesiredAnnotations) -> bool:
        """Write what a pod holds into its annotations, where nobody else's word stands.

        Args:
            api: session with the API server.
            place: of the pod.
            what: is to stand there.

        Returns:
            Whether the pod is as it should be, or none of ours; False if it isn't there, or can't
            be changed for a reason of its own, and has to be looked at again.

        Raises:
            ApiError: the server refused, or couldn't be reached.
            TransientError: it answers what is no pod.
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
        body = await self._counted("get", api.get(place.path, {}))
        decision = decide(_object(body), what, self._ctx.node)
        if decision.reason == NO_IDENTITY:
            raise TransientError(
                f"GET {place.path}: the server sent no Pod; see that its address is an API "
                "server's and nothing in between answers for it"
            )
        self._reporter.on_decision(place, what, decision)
        return decision

    async def _patch(self, api: KubeApi, place: PodRef, decision: Decision) -> bool:
        """Make the change; return whether it stands there then."""
        changes = decision.changes or {}
        try:
            body = await self._counted("patch", api.patch(place.path, changes))
        except ApiError as error:
            # A webhook may deny with any status, and means this pod by it.
            if is_admission_denial(error):
                self._reporter.on_refusal("denied", place, decision.keys, error)
            elif error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                self._reporter.on_refusal("invalid", place, decision.keys, error)
            else:
                raise
            return False
        there, written = _annotations(_object(body)), _annotations(changes)
        if any(there.get(key) != value for key, value in written.items()):
            self._reporter.on_refusal("dropped", place, decision.keys)
            return False
        self._ctx.log.debug("pod %s: wrote %s", place, ", ".join(decision.keys))
        return True

    async def _counted(self, method: str, request: Awaitable[bytes]) -> bytes:
        result = "error"
        try:
            body = await request
            result = "ok"
        except ApiError as error:
            result = str(error.status) if error.status else "error"
            raise
        finally:
            self._ctx.meter.add("podgpu_sink_requests_total", method=method, result=result)
        return body


def _object(body: bytes) -> dict[str, Any]:
    try:
        return as_dict(orjson.loads(body))
    except orjson.JSONDecodeError:
        return {}


def _annotations(pod: Any) -> dict[str, Any]:
    return as_dict(as_dict(as_dict(pod).get("metadata")).get("annotations"))
