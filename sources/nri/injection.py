"""What a container that is being made gets: koordinator's choice, as its own agent would write it.

Nothing here may keep a container from being made. Two plugins that set the same variable do, so a
choice that is there already stays as it is, whoever made it. `all` is none: images bring it along.
"""

from typing import Final

from pipeline.accepted import Accepted
from pipeline.allocations import MalformedError, koordinator
from pipeline.injection import ENV
from sources.nri import messages
from sources.nri.containers import named, visible
from sources.nri.pods import allocated, complaint
from sources.nri.roster import Roster

_ALL: Final = "all"

NOTHING: Final = b""
"""An empty answer: the container stays as it is."""


def from_koordinator(accepted: Accepted, payload: bytes, roster: Roster) -> bytes:
    """Return the answer to CreateContainer.

    The runtime doesn't tell what the pod requests: an annotation counts if a source that does see
    it has accepted it, with the same number of GPUs, and if the pod claims no GPU that was
    given to another pod.

    Args:
        accepted: the annotations that count.
        payload: its argument.
        roster: told of an annotation that can't be read.

    Raises:
        ProtocolError: the argument can't be read.
    """
    subject = messages.read_subject(payload)
    pod = messages.read_pod(subject.pod)
    if koordinator.ANNOTATION not in pod.annotations:
        return NOTHING
    container = messages.read_container(subject.container)
    value = visible(container)
    if value not in {None, _ALL} or named(container) is not None:
        return NOTHING
    try:
        minors = koordinator.minors(allocated(pod))
    except MalformedError as error:
        place = f"pod {pod.namespace[:64]}/{pod.name[:256]}"
        roster.complain(pod.uid[:64], f"{place}: {complaint(error)}; nothing is injected")
        return NOTHING
    if not minors:
        return NOTHING
    number = accepted.number(pod.uid, koordinator.ANNOTATION)
    if number != len(minors):
        place = f"pod {pod.namespace[:64]}/{pod.name[:256]}"
        roster.complain(
            pod.uid[:64],
            f"{place}: annotation {koordinator.ANNOTATION} names {len(minors)} GPUs, and "
            f"{_why_not(number)}; nothing is injected",
        )
        return NOTHING
    name = f"{pod.namespace}/{pod.name}"
    if name in accepted.contradicting:
        roster.complain(
            pod.uid[:64],
            f"pod {pod.namespace[:64]}/{pod.name[:256]}: annotation {koordinator.ANNOTATION} names "
            "a GPU that was given to another pod; nothing is injected",
        )
        return NOTHING
    # Taken away first, so that it is no conflict if another plugin was it that set it.
    taken = {f"-{ENV}": ""} if value == _ALL else {}
    return messages.adjusted({**taken, ENV: ",".join(map(str, minors))})


def _why_not(number: int | None) -> str:
    if number is None:
        return "no source of kind pods has told of the pod yet"
    if number == 0:
        return "by the source of kind pods it doesn't count: the pod requests no such resource"
    return f"the source of kind pods knows of {number}"
