"""Select the XID errors to report, and the pods that they affect."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pipeline.base.safe_text import line
from pipeline.changes.descriptions import advice, meaning
from pipeline.kube.name_rules import is_pod
from pipeline.model import Instant, XidError, XidVictim

_MAX_MESSAGE: Final = 1000
"""Maximum length of a message. The API server accepts 1024 characters."""

MAX_WAITING: Final = 100
"""Maximum number of errors that wait for details. A snapshot lists only a few hundred errors, so in
a burst further ones would be lost."""


class EventSubject(NamedTuple):
    """What an Event is about: a pod, a device and an XID code."""

    namespace: str
    pod: str
    uid: str
    device: str
    code: int


@dataclass(frozen=True, slots=True)
class PodError:
    """An XID error, as it affects a pod.

    Attributes:
        at: time of the error.
        container: name of the container that caused the error or, if none is known, of the affected
            container; empty if there are several.
        message: text for the Event. It contains no details of another pod's process: users who may
            read a pod's Events must not see other pods.
    """

    at: Instant
    container: str
    message: str


def due_errors(
    errors: Iterable[XidError], after: int, now: Instant, wait: float
) -> tuple[list[XidError], float | None]:
    """Return the errors that have waited long enough for details.

    An error also waits for the errors before it. If more than `MAX_WAITING` wait, the oldest are
    returned earlier.

    Args:
        errors: all known errors, sorted by serial.
        after: serial of the last error that was returned before.
        now: the current time.
        wait: how long to wait for details of an error, in seconds.

    Returns:
        The errors, sorted by serial; and the seconds until the next error is due, None if no error
        waits.
    """
    new = [error for error in errors if error.serial > after]
    due = new[: max(len(new) - MAX_WAITING, 0)]
    for error in new[len(due) :]:
        passed = error.at.seconds_until(now)
        # Do not wait for an error with a time in the future.
        if 0 <= passed < wait:
            return due, wait - passed
        due.append(error)
    return due, None


def pod_errors(
    error: XidError, wanted: Callable[[str], bool]
) -> tuple[list[tuple[EventSubject, PodError]], int]:
    """Return the pods that an error affects.

    Args:
        error: the error.
        wanted: function that returns whether Events are written in a namespace.

    Returns:
        Each pod and device once, in the order of the error's containers; and the number of affected
        containers, in any namespace, without a UID or a valid pod name.
    """
    victims_by_subject: dict[EventSubject, list[XidVictim]] = {}
    nameless = 0
    for victim in error.victims:
        if victim.subject.kind != "pod":  # an Event can only be about a pod
            continue
        subject = _event_subject(victim, error.code)
        if subject is None:
            nameless += 1
        elif wanted(subject.namespace):
            victims_by_subject.setdefault(subject, []).append(victim)
    return [
        (subject, _pod_error(error, subject.device, victims))
        for subject, victims in victims_by_subject.items()
    ], nameless


def _event_subject(victim: XidVictim, code: int) -> EventSubject | None:
    subject, pod = victim.subject, victim.pod
    namespace, name, uid = subject.namespace, subject.pod, subject.uid
    if pod is not None:
        # For a static pod, the API server knows only the UID of its mirror pod.
        namespace, name, uid = pod.namespace or namespace, pod.name or name, pod.uid or uid
        # Sources also read names from files. An invalid name must not become a URL path.
    if not (uid and is_pod(namespace, name)):
        return None
    return EventSubject(namespace, name, uid, victim.device, code)


def _pod_error(error: XidError, device: str, victims: list[XidVictim]) -> PodError:
    caused = [victim for victim in victims if victim.caused]
    containers = {victim.subject.container for victim in caused or victims}
    description = meaning(error.code)
    what = f"XID {error.code} ({description})" if description else f"XID {error.code}"
    how = {
        (True, True): ", which this pod held and used",
        (True, False): ", which this pod held",
        (False, True): ", which this pod used",
    }.get((any(victim.holds for victim in victims), any(victim.uses for victim in victims)), "")
    cause = ""
    if caused:
        pid = f"(pid {error.pid} on the node)" if error.pid is not None else ""
        process = f"{error.process} {pid}".strip()
        cause = f"; the kernel log names a process of this pod: {process}".removesuffix(": ")
    elif error.pid is not None:
        cause = "; the kernel log names a process that is not known to be this pod's"
    known = advice(error.code)
    hint = f"; advice: {known}" if known else ""
    return PodError(
        error.at,
        containers.pop() if len(containers) == 1 else "",
        line(f"{what} on {device}{how}{cause}{hint}", _MAX_MESSAGE),
    )
