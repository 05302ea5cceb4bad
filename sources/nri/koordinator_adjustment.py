"""Sets the GPUs that koordinator chose in new containers, as koordinator's own agent does.

An error here must not prevent the creation of a container. The creation fails if two plugins set
the same variable. Therefore podgpu never changes a variable that already names GPUs. The value
`all` names none: CUDA images set it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from pipeline.allocations import koordinator
from pipeline.allocations.annotation_values import MalformedError
from pipeline.allocations.device_injection import ENV
from pipeline.base.safe_text import shortened
from pipeline.component.accepted_annotations import AcceptedAnnotations, Gpu
from pipeline.model import RawDeviceId
from sources.nri.container_table import ContainerTable
from sources.nri.messages import decode, encode
from sources.nri.parsers import requested_by_name, visible_devices

_ALL: Final = "all"

_MAX_CHARACTERS: Final = 1 << 16
"""Maximum number of characters of an annotation that is read. Kubernetes allows four times as many
for all annotations of a pod; koordinator writes some hundred for each GPU."""

NO_ADJUSTMENT: Final = b""
"""An empty response, which does not change the container."""


def koordinator_adjustment(
    accepted: AcceptedAnnotations, payload: bytes, container_table: ContainerTable
) -> bytes:
    """Return the response to CreateContainer.

    The response is empty if the container already has GPUs by name, or if the annotation is not
    valid. The runtime does not report what the pod requests. Therefore an annotation is valid only
    if the source `pods` has accepted it for this pod, with the same GPUs. Each GPU must also be one
    that a scheduler may assign, its minor number and UUID must agree, and no other pod may hold it.

    Args:
        accepted: the annotations that the source `pods` has accepted, and the known GPUs.
        payload: the argument of the request.
        container_table: receives a warning if the annotation is not valid.

    Raises:
        ConnectionLostError: the argument is invalid.
    """
    subject = decode("Subject", payload)
    pod = decode("PodSandbox", subject.pod)
    if koordinator.ANNOTATION not in pod.annotations:
        return NO_ADJUSTMENT
    container = decode("Container", subject.container)
    value = visible_devices(container)
    if value not in {None, _ALL} or requested_by_name(container) is not None:
        return NO_ADJUSTMENT
    minors, why = _gpus_to_inject(accepted, pod)
    if why:
        pod_name = f"pod {pod.namespace[:64]}/{pod.name[:256]}"
        text = f"{pod_name}: annotation {koordinator.ANNOTATION}: {why}; no GPU is injected"
        container_table.warn(pod.uid[:64], text)
    if why or not minors:
        return NO_ADJUSTMENT
    # Remove the variable first: then it is no conflict if another plugin has set it.
    env = [{"key": f"-{ENV}", "value": ""}] if value == _ALL else []
    env.append({"key": ENV, "value": ",".join(map(str, minors))})
    return encode("CreateContainerResponse", adjust={"env": env})


def _gpus_to_inject(accepted: AcceptedAnnotations, pod: Any) -> tuple[Iterable[int], str]:
    """Return the minor numbers in a pod's annotation, and why podgpu must not inject these GPUs."""
    annotation = pod.annotations[koordinator.ANNOTATION]
    if len(annotation) > _MAX_CHARACTERS:
        return (), f"is longer than {_MAX_CHARACTERS} characters"
    try:
        minors = koordinator.minors(annotation)
        named = frozenset(raw for one in koordinator.read(annotation) for raw in one.devices)
    except MalformedError as error:
        return (), str(error)
    if not minors:
        return (), ""
    known = accepted.devices(pod.uid, koordinator.ANNOTATION)
    own_names = {f"{pod.namespace}/{pod.name}", pod.uid}
    return minors, _not_accepted_reason(known, named) or _not_schedulable_reason(
        accepted.gpus, minors, own_names
    )


def _not_accepted_reason(
    known: frozenset[RawDeviceId] | None, named: frozenset[RawDeviceId]
) -> str:
    if known is None:
        return "the source pods has not reported this pod yet"
    if not known:
        return "is not valid according to the source pods: the pod does not request these GPUs"
    if known != named:
        return "names other GPUs than the pod's annotation in the API server"
    return ""


def _not_schedulable_reason(
    gpus: Mapping[int, Gpu] | None, minors: Mapping[int, str], own_names: Collection[str]
) -> str:
    """Return why a scheduler may not assign these GPUs to the pod; empty if it may."""
    if gpus is None:
        return "some sources have not reported yet which GPUs are allocated"
    for minor, uuid in minors.items():
        gpu = gpus.get(minor)
        if gpu is None:
            return f"names minor number {minor}, which is not a known GPU"
        if uuid and uuid.lower() != gpu.uuid.lower():
            return f"names minor number {minor} as {shortened(uuid)}, but it is {gpu.uuid}"
        if not gpu.exclusive_pods.issubset(own_names):
            return f"names a GPU that is allocated to another pod, by minor number {minor}"
        if gpu.plugin_managed:
            return (
                f"names minor number {minor}, which a device plugin or a DRA driver manages; "
                "a scheduler may not assign it"
            )
    return ""
