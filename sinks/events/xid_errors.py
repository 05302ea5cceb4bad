"""Which errors of a snapshot are to be told, and on which pods."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pipeline.kube.name_rules import is_subdomain
from pipeline.model import Instant, XidError, XidVictim

_LONGEST_NAMESPACE: Final = 63

WAITED_FOR: Final = 100
"""Errors that are waited for at a time: a snapshot tells of some hundred, and in a storm those that
are waited for would pass by."""


class EventSubject(NamedTuple):
    """What one Event is about: a pod, a device and a code."""

    namespace: str
    pod: str
    uid: str
    device: str
    code: int


@dataclass(frozen=True, slots=True)
class PodError:
    """One error, as it struck a pod.

    Attributes:
        at: when.
        container: the one that it struck, or that caused it; empty where it is several, or unknown.
        holds: a container of the pod held the device.
        uses: one had processes there.
        caused: the kernel's log names a process of the pod.
        others: the kernel's log names a process, and it isn't known to be the pod's.
        pid: of the pod's process that it names.
        process: its name.
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
    """Return the errors about which nothing more is waited for.

    Args:
        errors: all that are known, by serial.
        after: serial of the last one that was due before.
        now: the present moment.
        wait: how long an error is waited for, in seconds.

    Returns:
        Those that are due, by serial, and the seconds until the next one is; None without one. An
        error waits for those before it.
    """
    new = [error for error in errors if error.serial > after]
    found = new[: max(len(new) - WAITED_FOR, 0)]
    for error in new[len(found) :]:
        passed = error.at.seconds_until(now)
        # A moment that lies ahead is none that can be waited for.
        if 0 <= passed < wait:
            return found, wait - passed
        found.append(error)
    return found, None


def pod_errors(
    error: XidError, wanted: Callable[[str], bool]
) -> tuple[list[tuple[EventSubject, PodError]], int]:
    """Return whom an error struck.

    Args:
        error: the error.
        wanted: whether something is written in a namespace.

    Returns:
        Each pod and device once, in the order of the victims; and how many victims have no name or
        uid that an Event could refer to.
    """
    found: dict[EventSubject, list[XidVictim]] = {}
    nameless = 0
    for victim in error.victims:
        struck = _event_subject(victim, error.code)
        if struck is None:
            nameless += 1
        elif wanted(struck.namespace):
            found.setdefault(struck, []).append(victim)
    return [(struck, _stroke(error, victims)) for struck, victims in found.items()], nameless


def _event_subject(victim: XidVictim, code: int) -> EventSubject | None:
    subject, pod = victim.subject, victim.pod
    namespace, name, uid = subject.namespace, subject.pod, subject.uid
    if pod is not None:
        # Of a static pod the API server knows the uid of its mirror alone.
        namespace, name, uid = pod.namespace or namespace, pod.name or name, pod.uid or uid
    # Sources read names from files too: what is no name must not become a path.
    possible = (
        len(namespace) <= _LONGEST_NAMESPACE
        and "." not in namespace
        and is_subdomain(namespace)
        and is_subdomain(name)
    )
    return EventSubject(namespace, name, uid, victim.device, code) if possible and uid else None


def _stroke(error: XidError, victims: list[XidVictim]) -> PodError:
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
