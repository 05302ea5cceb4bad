"""Build the Kubernetes Event object."""

import datetime
import hashlib
from typing import Final

from pipeline.model import NS, Instant
from sinks.events.work_queue import PendingEvent
from sinks.events.xid_errors import EventSubject, PodError

REASON: Final = "GpuXidError"
_COMPONENT: Final = "podgpu"
_MAX_POD_NAME: Final = 230
"""How much of a pod's name goes into the name of the Event, which has at most 253 characters."""


def name(subject: EventSubject, node: str, at: Instant) -> str:
    """Return a name for an Event. The same arguments return the same name.

    Args:
        subject: pod, device and code of the Event.
        node: name of the node.
        at: time of the first error that the Event reports.
    """
    identity = "\n".join([*map(str, subject), node, str(at.wall_ns)])
    suffix = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return f"{subject.pod[:_MAX_POD_NAME].rstrip('-.')}.{suffix}"


def event(subject: EventSubject, pending: PendingEvent, node: str) -> dict[str, object]:
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


def changes(error: PodError, count: int) -> dict[str, object]:
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
