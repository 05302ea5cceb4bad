"""The Event as an object, and what it says."""

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
_LONGEST_NAME: Final = 230
"""Of a pod's name, as much as goes into the Event's, which has 253 characters at most."""
_LONGEST_TEXT: Final = 1000
"""The API server takes 1024."""


def name(subject: EventSubject, node: str, at: Instant) -> str:
    """Return a name for an Event: of two with the same name they are the same.

    Args:
        subject: whom it is about.
        node: name of the node.
        at: when the first error happened that it tells of.
    """
    what = "\n".join([*map(str, subject), node, str(at.wall_ns)])
    end = hashlib.sha256(what.encode()).hexdigest()[:16]
    return f"{subject.pod[:_LONGEST_NAME].rstrip('-.')}.{end}"


def event(subject: EventSubject, pending: PendingEvent, node: str) -> dict[str, object]:
    """Return an Event as it is made first.

    Args:
        subject: whom it is about.
        pending: what is known of that.
        node: name of the node.
    """
    stroke = pending.last
    about: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": subject.namespace,
        "name": subject.pod,
        "uid": subject.uid,
    }
    if stroke.container:
        about["fieldPath"] = f"spec.containers{{{stroke.container}}}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": subject.namespace, "name": pending.name},
        "involvedObject": about,
        "type": "Warning",
        "reason": REASON,
        "message": message(subject, stroke),
        "source": {"component": _COMPONENT, "host": node},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": _time(pending.first),
        "lastTimestamp": _time(stroke.at),
        "count": pending.count,
    }


def changes(subject: EventSubject, stroke: PodError, count: int) -> dict[str, object]:
    """Return what becomes different of an Event that further errors are added to.

    Args:
        subject: whom it is about.
        stroke: the last error.
        count: of all errors that it tells of.
    """
    return {
        "count": count,
        "lastTimestamp": _time(stroke.at),
        "message": message(subject, stroke),
    }


def message(subject: EventSubject, stroke: PodError) -> str:
    """Say in plain words what happened last.

    Of another pod's process nothing is told but that there is one: who may read a pod's Events need
    not know of its neighbours.
    """
    known = meaning(subject.code)
    what = f"XID {subject.code} ({known})" if known else f"XID {subject.code}"
    how = {
        (True, True): ", which this pod held and used",
        (True, False): ", which this pod held",
        (False, True): ", which this pod used",
    }.get((stroke.holds, stroke.uses), "")
    return line(f"{what} on {subject.device}{how}{_affected_text(stroke)}", _LONGEST_TEXT)


def _affected_text(stroke: PodError) -> str:
    if stroke.caused:
        who = " ".join(
            [
                *([stroke.process] if stroke.process else []),
                *([f"(pid {stroke.pid} on the node)"] if stroke.pid is not None else []),
            ]
        )
        return f"; the kernel log names a process of this pod: {who}".removesuffix(": ")
    if stroke.others:
        return "; the kernel log names a process that is not known to be this pod's"
    return ""


def _time(at: Instant) -> str:
    moment = datetime.datetime.fromtimestamp(at.wall_ns // NS, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
