"""What a container that is being made gets: koordinator's choice, as its own agent would write it.

Nothing here may keep a container from being made. Two plugins that set the same variable do, so a
choice that is there already stays as it is, whoever made it. `all` is none: images bring it along.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from pipeline.allocations import MalformedError, koordinator
from pipeline.allocations.device_injection import ENV
from pipeline.base.safe_text import shortened
from pipeline.component.accepted_annotations import AcceptedAnnotations, Gpu
from pipeline.model import RawDeviceId
from sources.nri import messages
from sources.nri.container_parser import requested_by_name, visible_devices
from sources.nri.container_table import ContainerTable
from sources.nri.pod_parser import koordinator_annotation

_ALL: Final = "all"

NO_ADJUSTMENT: Final = b""
"""An empty answer: the container stays as it is."""


def koordinator_adjustment(
    accepted: AcceptedAnnotations, payload: bytes, container_table: ContainerTable
) -> bytes:
    """Return the answer to CreateContainer.

    The runtime doesn't tell what the pod requests: an annotation counts if a source that does see
    it has accepted one with the same GPUs. Each GPU has to be one that a scheduler gives out, by
    the number that is injected and by the id beside it, and given to no other pod.

    Args:
        accepted: the annotations that count.
        payload: its argument.
        container_table: told of an annotation that can't be read.

    Raises:
        ProtocolError: the argument can't be read.
    """
    subject = messages.read_subject(payload)
    pod = messages.read_pod(subject.pod)
    if koordinator.ANNOTATION not in pod.annotations:
        return NO_ADJUSTMENT
    container = messages.read_container(subject.container)
    value = visible_devices(container)
    if value not in {None, _ALL} or requested_by_name(container) is not None:
        return NO_ADJUSTMENT
    minors, why = _gpus_to_inject(accepted, pod)
    if why:
        place = f"pod {pod.namespace[:64]}/{pod.name[:256]}"
        text = f"{place}: annotation {koordinator.ANNOTATION}: {why}; nothing is injected"
        container_table.warn(pod.uid[:64], text)
    if why or not minors:
        return NO_ADJUSTMENT
    # Taken away first, so that it is no conflict if another plugin was it that set it.
    taken = {f"-{ENV}": ""} if value == _ALL else {}
    return messages.adjusted({**taken, ENV: ",".join(map(str, minors))})


def _gpus_to_inject(accepted: AcceptedAnnotations, pod: Any) -> tuple[Iterable[int], str]:
    """Return the minor numbers in a pod's annotation, and why they are not injected."""
    try:
        annotation = koordinator_annotation(pod)
        minors = koordinator.minors(annotation)
        named = frozenset(raw for one in koordinator.read(annotation) for raw in one.devices)
    except MalformedError as error:
        return (), str(error)
    if not minors:
        return (), ""
    known = accepted.devices(pod.uid, koordinator.ANNOTATION)
    mine = {f"{pod.namespace}/{pod.name}", pod.uid}
    return minors, _not_accepted_reason(known, named) or _not_schedulable_reason(
        accepted.gpus, minors, mine
    )


def _not_accepted_reason(
    known: frozenset[RawDeviceId] | None, named: frozenset[RawDeviceId]
) -> str:
    if known is None:
        return "no source of kind pods has told of the pod yet"
    if not known:
        return "doesn't count, by the source of kind pods: the pod doesn't request what it names"
    if known != named:
        return "names other GPUs than the API server has"
    return ""


def _not_schedulable_reason(
    gpus: Mapping[int, Gpu] | None, minors: Mapping[int, str], mine: Collection[str]
) -> str:
    """Return why GPUs are not a scheduler's to give to a pod; empty if they are."""
    if gpus is None:
        return "not all sources have told yet which GPUs were given out"
    for minor, uuid in minors.items():
        gpu = gpus.get(minor)
        if gpu is None:
            return f"names minor number {minor}, which no GPU has that a source shows"
        if uuid and uuid.lower() != gpu.uuid.lower():
            return f"names minor number {minor}, which is {gpu.uuid}, as {shortened(uuid)}"
        if not gpu.exclusive_pods.issubset(mine):
            return f"names a GPU that was given to another pod, by minor number {minor}"
        if gpu.plugin_managed:
            return (
                f"names minor number {minor}, which a device plugin or a DRA driver gives out and "
                "no scheduler"
            )
    return ""
