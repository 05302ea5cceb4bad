"""Build the Kubernetes Event object and its message."""

import datetime
import hashlib
from typing import Final

from pipeline.base.safe_text import line
from pipeline.changes.descriptions import meaning
from pipeline.model import NS, Instant
from sinks.events.work_queue import PendingEvent
from sinks.events.xid_errors import EventSubject, PodError

REASON: Final = "GpuXidError"
_COMPONENT: Final = "podgpu"
_MAX_POD_NAME: Final = 230
"""How much of a pod's name goes into the name of the Event, which has at most 253 characters."""
_MAX_MESSAGE: Final = 1000
"""The API server accepts 1024 characters."""


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
        "message": message(subject, error),
        "source": {"component": _COMPONENT, "host": node},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": _time(pending.first),
        "lastTimestamp": _time(error.at),
        "count": pending.count,
    }


def changes(subject: EventSubject, error: PodError, count: int) -> dict[str, object]:
    """Return the patch that adds further errors to an Event.

    Args:
        subject: pod, device and code of the Event.
        error: the last error.
        count: number of all errors that the Event reports.
    """
    return {
        "count": count,
        "lastTimestamp": _time(error.at),
        "message": message(subject, error),
    }


def message(subject: EventSubject, error: PodError) -> str:
    """Return the text that describes the last error.

    It contains no details of another pod's process: users who may read a pod's Events must not see
    other pods.
    """
    description = meaning(subject.code)
    what = f"XID {subject.code} ({description})" if description else f"XID {subject.code}"
    how = {
        (True, True): ", which this pod held and used",
        (True, False): ", which this pod held",
        (False, True): ", which this pod used",
    }.get((error.holds, error.uses), "")
    return line(f"{what} on {subject.device}{how}{_affected_text(error)}", _MAX_MESSAGE)


def _affected_text(error: PodError) -> str:
    if error.caused:
        process = " ".join(
            [
                *([error.process] if error.process else []),
                *([f"(pid {error.pid} on the node)"] if error.pid is not None else []),
            ]
        )
        return f"; the kernel log names a process of this pod: {process}".removesuffix(": ")
    if error.others:
        return "; the kernel log names a process that is not known to be this pod's"
    return ""


def _time(at: Instant) -> str:
    moment = datetime.datetime.fromtimestamp(at.wall_ns // NS, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
