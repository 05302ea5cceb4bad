"""Writes one Event, or adds to one, and says what can't be written."""

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import quote

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi, SinkContext
from pipeline.component.warnings import warn
from pipeline.kube.api_errors import is_admission_denial
from sinks.events import event_object
from sinks.events.work_queue import PendingEvent, WrittenEvent
from sinks.events.xid_errors import EventSubject

Reason = Literal["denied", "invalid", "namespace", "nameless", "missed", "crowded", "late"]

REASONS: Final[tuple[Reason, ...]] = (
    "crowded",
    "denied",
    "invalid",
    "late",
    "missed",
    "nameless",
    "namespace",
)

_FIXES: Final[dict[Reason, str]] = {
    "denied": "let whoever runs that webhook or policy allow podgpu's Events",
    "invalid": "see which admission policies look at Events; else report it with this text",
    "namespace": "it is gone, or on its way, and its pods with it",
}
_TERMINATING: Final = "is being terminated"


class Writer:
    """Sees to one Event at a time.

    Args:
        ctx: the sink's.
    """

    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._said: set[str] = set()
        for reason in REASONS:
            self.count(reason, 0)

    def count(self, reason: Reason, errors: int) -> None:
        """Count errors that are told on no pod."""
        self._ctx.meter.add("podgpu_sink_errors_total", errors, operation="event", reason=reason)

    async def write(
        self, api: KubeApi, subject: EventSubject, pending: PendingEvent
    ) -> tuple[WrittenEvent, int] | Reason:
        """Make an Event, or add to the one that there is.

        Args:
            api: session with the API server.
            subject: whom it is about.
            pending: what is to be told. Nothing may be added to it meanwhile.

        Returns:
            What stands there now, and how many errors that tells of which weren't told before; or
            why it can't, for a reason of this one's own.

        Raises:
            ApiError: the server refused, or couldn't be reached. What was to be written may stand
                there all the same, and is the same when it is written again.
        """
        count, stroke = pending.count, pending.last
        events = f"/api/v1/namespaces/{quote(subject.namespace, safe='')}/events"
        try:
            if (told := pending.written) is not None:
                whole = told.count + count
                changes = event_object.changes(subject, stroke, whole)
                if await self._patch(api, f"{events}/{quote(told.name, safe='')}", changes):
                    return WrittenEvent(told.name, whole), count
            pending.name = pending.name or event_object.name(subject, self._ctx.node, pending.first)
            body = event_object.event(subject, pending, self._ctx.node)
            if not await self._create(api, events, body):
                # It was made, and its answer lost; more may have happened since.
                changes = event_object.changes(subject, stroke, count)
                if not await self._patch(api, f"{events}/{quote(pending.name, safe='')}", changes):
                    await self._create(api, events, body)  # somebody has removed it in between
        except ApiError as error:
            if (reason := _own_reason(error)) is None:
                raise
            self._refused(reason, subject, error)
            return reason
        self._ctx.log.debug("pod %s/%s: wrote an Event", subject.namespace, subject.pod)
        return WrittenEvent(pending.name, count), count

    async def _patch(self, api: KubeApi, path: str, changes: dict[str, object]) -> bool:
        """Change an Event; return False if it isn't there any more."""
        try:
            await self._counted("patch", api.patch(path, changes))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    async def _create(self, api: KubeApi, path: str, body: dict[str, object]) -> bool:
        """Make an Event; return False if there is one of that name."""
        try:
            await self._counted("create", api.create(path, body))
        except ApiError as error:
            # With the reason Conflict it has met something else, and is to be made again.
            if error.status == HTTPStatus.CONFLICT and error.reason != "Conflict":
                return False
            raise
        return True

    async def _counted(self, method: str, request: Awaitable[bytes]) -> None:
        result = "error"
        try:
            await request
            result = "ok"
        except ApiError as error:
            result = str(error.status) if error.status else "error"
            raise
        finally:
            self._ctx.meter.add("podgpu_sink_requests_total", method=method, result=result)

    def _refused(self, reason: Reason, subject: EventSubject, error: ApiError) -> None:
        warn(
            self._ctx,
            "no Event on pod %s/%s: %s; %s",
            subject.namespace,
            subject.pod,
            error,
            _FIXES[reason],
            is_new=reason not in self._said,
        )
        self._said.add(reason)


def _own_reason(error: ApiError) -> Reason | None:
    """Return why this one Event is refused; None for what others are refused for as well."""
    going = error.status == HTTPStatus.FORBIDDEN and _TERMINATING in str(error)
    if error.status == HTTPStatus.NOT_FOUND or going:
        return "namespace"
    if is_admission_denial(error):
        return "denied"
    if error.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}:
        return "invalid"
    return None
