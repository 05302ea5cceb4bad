"""Create and patch Events, and report those that can't be written."""

import datetime
import hashlib
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import quote

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi, SinkContext
from pipeline.component.warnings import warn
from pipeline.kube.api_errors import is_admission_denial
from pipeline.kube.api_sink import counted
from pipeline.model import NS, Instant
from sinks.events.affected_pods import EventSubject, PodError
from sinks.events.event_queue import PendingEvent, WrittenEvent

REASON: Final = "GpuXidError"
_COMPONENT: Final = "podgpu"
_MAX_POD_NAME: Final = 230
"""Maximum number of characters of a pod's name in the Event's name, which has at most 253."""

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
    "denied": "change that webhook or policy so that it allows podgpu's Events",
    "invalid": "check which admission policies apply to Events; else report this text as a bug",
    "namespace": "the namespace is deleted or being deleted, with its pods",
}
_TERMINATING: Final = "is being terminated"


class Writer:
    """Writes Events one at a time, and counts and logs errors that get no Event.

    Args:
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._logged: set[str] = set()
        for reason in REASONS:
            self.count(reason, 0)

    def count(self, reason: Reason, errors: int) -> None:
        """Count errors that get no Event, by reason."""
        self._ctx.meter.add("podgpu_sink_errors_total", errors, operation="event", reason=reason)

    async def write(
        self, api: KubeApi, subject: EventSubject, pending: PendingEvent
    ) -> WrittenEvent | Reason:
        """Create an Event, or add errors to an existing one.

        Args:
            api: session with the API server.
            subject: pod, device and code of the Event.
            pending: the errors to report. The caller must not change it during the call.

        Returns:
            The Event as it is now; or the reason, if the server refuses this Event but may accept
            others.

        Raises:
            ApiError: the server refused the request, or was not reachable. The Event may have been
                written nevertheless; a repeated call writes the same Event.
        """
        count, last_error = pending.count, pending.last
        events = f"/api/v1/namespaces/{quote(subject.namespace, safe='')}/events"
        try:
            if (written := pending.written) is not None:
                total = written.count + count
                changes = _changes(last_error, total)
                if await self._patch(api, f"{events}/{quote(written.name, safe='')}", changes):
                    return WrittenEvent(written.name, total)
            pending.name = pending.name or _name(subject, self._ctx.node, pending.first)
            body = _event(subject, pending, self._ctx.node)
            if not await self._create(api, events, body):
                # It was created before, and the response was lost. There may be more errors now.
                changes = _changes(last_error, count)
                if not await self._patch(api, f"{events}/{quote(pending.name, safe='')}", changes):
                    await self._create(api, events, body)  # someone has deleted it since
        except ApiError as error:
            if (reason := _refusal_reason(error)) is None:
                raise
            self._log_refusal(reason, subject, error)
            return reason
        self._ctx.log.debug("pod %s/%s: wrote an Event", subject.namespace, subject.pod)
        return WrittenEvent(pending.name, count)

    async def _patch(self, api: KubeApi, path: str, changes: dict[str, object]) -> bool:
        """Patch an Event; return False if it does not exist any more."""
        try:
            await counted(self._ctx.meter, "patch", api.patch(path, changes))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    async def _create(self, api: KubeApi, path: str, body: dict[str, object]) -> bool:
        """Create an Event; return False if one with this name exists."""
        try:
            await counted(self._ctx.meter, "create", api.create(path, body))
        except ApiError as error:
            # With the reason Conflict another object is in the way, and a retry is needed.
            if error.status == HTTPStatus.CONFLICT and error.reason != "Conflict":
                return False
            raise
        return True

    def _log_refusal(self, reason: Reason, subject: EventSubject, error: ApiError) -> None:
        warn(
            self._ctx,
            "no Event on pod %s/%s: %s; %s",
            subject.namespace,
            subject.pod,
            error,
            _FIXES[reason],
            is_new=reason not in self._logged,
        )
        self._logged.add(reason)


def _refusal_reason(error: ApiError) -> Reason | None:
    """Return why the server refused only this Event; None if others would be refused too."""
    terminating = error.status == HTTPStatus.FORBIDDEN and _TERMINATING in str(error)
    if error.status == HTTPStatus.NOT_FOUND or terminating:
        return "namespace"
    if is_admission_denial(error):
        return "denied"
    if error.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}:
        return "invalid"
    return None


def _name(subject: EventSubject, node: str, at: Instant) -> str:
    """Return a name for an Event. The same arguments return the same name.

    Args:
        subject: pod, device and code of the Event.
        node: name of the node.
        at: time of the first error that the Event reports.
    """
    identity = "\n".join([*map(str, subject), node, str(at.wall_ns)])
    suffix = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return f"{subject.pod[:_MAX_POD_NAME].rstrip('-.')}.{suffix}"


def _event(subject: EventSubject, pending: PendingEvent, node: str) -> dict[str, object]:
    """Return a new Event object.

    Args:
        subject: pod, device and code of the Event.
        pending: the errors to report.
        node: name of the node.
    """
    error = pending.last
    involved: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": subject.namespace,
        "name": subject.pod,
        "uid": subject.uid,
    }
    if error.container:
        involved["fieldPath"] = f"spec.containers{{{error.container}}}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": subject.namespace, "name": pending.name},
        "involvedObject": involved,
        "type": "Warning",
        "reason": REASON,
        "message": error.message,
        "source": {"component": _COMPONENT, "host": node},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": _time(pending.first),
        "lastTimestamp": _time(error.at),
        "count": pending.count,
    }


def _changes(error: PodError, count: int) -> dict[str, object]:
    """Return the patch that adds further errors to an Event.

    Args:
        error: the last error.
        count: number of all errors that the Event reports.
    """
    return {
        "count": count,
        "lastTimestamp": _time(error.at),
        "message": error.message,
    }


def _time(at: Instant) -> str:
    moment = datetime.datetime.fromtimestamp(at.wall_ns // NS, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
