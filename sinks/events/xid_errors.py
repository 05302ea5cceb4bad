"""Select the XID errors to report, and the pods that they affect."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pipeline.kube.name_rules import is_subdomain
from pipeline.model import Instant, XidError, XidVictim

_MAX_NAMESPACE: Final = 63

MAX_WAITING: Final = 100
"""Maximum number of errors to wait for. A snapshot lists a few hundred errors, so in a burst the
others would be lost."""


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
        container: the affected container, or the one that caused it; empty if several or unknown.
        holds: whether a container of the pod held the device.
        uses: whether a container of the pod had processes on the device.
        caused: whether the kernel log names a process of the pod.
        others: whether the kernel log names a process that is not known to be the pod's.
        pid: PID of the pod's process that the log names.
        process: name of that process.
    """

    at: Instant
    container: str
    holds: bool
    uses: bool
    caused: bool
    others: bool
    pid: int | None
    process: str


def due_errors(
    errors: Iterable[XidError], after: int, now: Instant, wait: float
) -> tuple[list[XidError], float | None]:
    """Return the errors that have waited long enough for details.

    Args:
        errors: all known errors, by serial.
        after: serial of the last error that was returned before.
        now: the current time.
        wait: how long to wait for details of an error, in seconds.

    Returns:
        The errors, by serial, and the seconds until the next one is due; None without one. An error
        waits for the errors before it.
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
        wanted: whether Events are written in a namespace.

    Returns:
        Each pod and device once, in the order of the victims; and the number of victims without a
        name or UID that an Event could refer to.
    """
    victims_by_subject: dict[EventSubject, list[XidVictim]] = {}
    nameless = 0
    for victim in error.victims:
        subject = _event_subject(victim, error.code)
        if subject is None:
            nameless += 1
        elif wanted(subject.namespace):
            victims_by_subject.setdefault(subject, []).append(victim)
    return [
        (subject, _pod_error(error, victims)) for subject, victims in victims_by_subject.items()
    ], nameless


def _event_subject(victim: XidVictim, code: int) -> EventSubject | None:
    subject, pod = victim.subject, victim.pod
    namespace, name, uid = subject.namespace, subject.pod, subject.uid
    if pod is not None:
        # For a static pod, the API server knows only the UID of its mirror pod.
        namespace, name, uid = pod.namespace or namespace, pod.name or name, pod.uid or uid
        # Sources also read names from files. An invalid name must not become a URL path.
    is_valid = (
        len(namespace) <= _MAX_NAMESPACE
        and "." not in namespace
        and is_subdomain(namespace)
        and is_subdomain(name)
    )
    return EventSubject(namespace, name, uid, victim.device, code) if is_valid and uid else None


def _pod_error(error: XidError, victims: list[XidVictim]) -> PodError:
    caused = [victim for victim in victims if victim.caused]
    containers = {victim.subject.container for victim in caused or victims}
    return PodError(
        error.at,
        containers.pop() if len(containers) == 1 else "",
        any(victim.holds for victim in victims),
        any(victim.uses for victim in victims),
        bool(caused),
        error.pid is not None and not caused,
        error.pid if caused else None,
        error.process if caused else "",
    )
