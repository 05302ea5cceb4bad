"""Parsers for pods and containers as the runtime reports them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from pipeline.allocations.device_injection import ENV, Injection, annotated_gpus, requested_gpus
from pipeline.model import RawDeviceId
from sources.nri.messages import decode

STOPPED: Final = 4
"""The runtime's number for the state of a container whose process has ended."""

LONGEST: Final = 512
"""Maximum number of characters of a name or an id: twice what Kubernetes allows. A longer text
counts as unknown."""

_MAX_ENTRIES_READ: Final = 20_000
"""How many variables, mounts, devices or annotations of a container are read. Each Kubernetes
Service of its namespace adds seven variables, so more than a thousand Services are possible."""

_MAX_DEVICES: Final = 256
"""Largest plausible number of devices of a container: more than a node has."""

_LONGEST_VALUE: Final = 1 << 14
_LONGEST_PATH: Final = 4096

_NVIDIA_PREFIX: Final = "nvidia.cdi.k8s.io"
"""Prefix of pod annotations that NVIDIA's own NRI plugin reads."""

_SANDBOX: Final = {"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"}

_GPU_MAJOR: Final = 195
_FIRST_OTHER: Final = 248
"""Minor numbers from this one on are the driver's control devices, such as /dev/nvidiactl."""
_MEMORY_MAJOR: Final = 1
"""Major number of /dev/null, /dev/zero and /dev/kmsg. Every container has these implicitly. A
container that lists them has all devices of the host: it is privileged."""
_MIG_PATH: Final = "/dev/nvidia-caps/"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as the runtime reports it.

    Attributes:
        sandbox: the runtime's id of the pod.
        namespace: name of its namespace.
        name: name of the pod.
        uid: the kubelet's UID; for a static pod it differs from the UID of its mirror pod.
        sees_all: whether an annotation requests all GPUs of the node, as for operators' own pods.
        annotated: keys of the annotations that name GPUs by CDI names.
    """

    sandbox: str
    namespace: str
    name: str
    uid: str
    sees_all: bool = False
    annotated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as the runtime reports it.

    Attributes:
        id: the runtime's id.
        sandbox: the runtime's id of its pod.
        name: name of the container in the pod.
        state: the runtime's number for its state.
        pid: PID of its first process, in the host's PID namespace; None before it has one.
        created_ns: Unix time of its creation; 0 if the runtime does not report it.
        started_ns: Unix time of its start; 0 if the runtime does not report it.
        cgroup: the requested path of its cgroup; empty if unknown.
        gpus_by_name: GPUs named by its CDI devices, mounts or environment; None if there are none.
        gpus_by_node: GPUs whose device nodes it was given; None if there are none.
        gpus_by_annotation: GPUs that its annotations name by CDI names, by annotation key.
    """

    id: str
    sandbox: str
    name: str
    state: int = 0
    pid: int | None = None
    created_ns: int = 0
    started_ns: int = 0
    cgroup: str = ""
    gpus_by_name: Injection | None = None
    gpus_by_node: Injection | None = None
    gpus_by_annotation: tuple[tuple[str, tuple[RawDeviceId, ...]], ...] = ()


def plausible(*texts: str) -> bool:
    """Return whether each text has 1 to `LONGEST` characters."""
    return all(0 < len(text) <= LONGEST for text in texts)


def _name_all_gpus(texts: Iterable[str]) -> bool:
    """Return whether a CDI name in comma-separated texts means all GPUs: it is no allocation."""
    return any(name.strip().endswith("/gpu=all") for text in texts for name in text.split(","))


def read_pod(data: bytes) -> Pod | None:
    """Parse a pod; None if its id, namespace, name or UID is empty or too long.

    Raises:
        ConnectionLostError: the message is invalid.
    """
    message = decode("PodSandbox", data)
    if not plausible(message.id, message.namespace, message.name, message.uid):
        return None
    annotations = message.annotations
    sees_all = _name_all_gpus(
        value for key, value in annotations.items() if key.startswith(_NVIDIA_PREFIX)
    )
    keys = frozenset(key for key, _ in annotated_gpus(annotations))
    return Pod(message.id, message.namespace, message.name, message.uid, sees_all, keys)


def read_container(data: bytes) -> Container | None:
    """Parse a container; None if it is the pod's sandbox, or an id or name is empty or too long.

    Raises:
        ConnectionLostError: the message is invalid.
    """
    message = decode("Container", data)
    if not plausible(message.id, message.pod_sandbox_id, message.name) or _is_sandbox(message):
        return None
    cgroup = message.linux.cgroups_path
    return Container(
        message.id,
        message.pod_sandbox_id,
        message.name,
        message.state,
        message.pid or None,
        max(message.created_at, 0),
        max(message.started_at, 0),
        cgroup if len(cgroup) <= _LONGEST_PATH else "",
        requested_by_name(message, annotated=False),
        _injection_by_node(message),
        tuple(annotated_gpus(_annotations(message))),
    )


def visible_devices(message: Any) -> str | None:
    """Return `NVIDIA_VISIBLE_DEVICES` of a container; None if it is not set."""
    pairs = (variable.partition("=") for variable in islice(message.env, _MAX_ENTRIES_READ))
    values = [value for key, _, value in pairs if key == ENV]
    return values[-1] if values else None


def requested_by_name(message: Any, *, annotated: bool = True) -> Injection | None:
    """Return the GPUs that a container names, with `annotated` also those in its annotations."""
    value = visible_devices(message) or ""
    return if_plausible(
        requested_gpus(
            env={ENV: value if len(value) <= _LONGEST_VALUE else ""},
            mounts=(mount.destination for mount in islice(message.mounts, _MAX_ENTRIES_READ)),
            cdi=_cdi_names(message),
            annotations=_annotations(message) if annotated else None,
        )
    )


def _injection_by_node(message: Any) -> Injection | None:
    """Return the GPUs whose device nodes the container was given; None if there are none.

    The nodes show nothing about a privileged container, which has all nodes, or about an operator's
    container, which requests all GPUs. They show nothing about a container with a MIG instance
    either, because it needs the node of the whole GPU. None is returned for these.
    """
    if _name_all_gpus(chain(_cdi_names(message), _annotations(message).values())):
        return None
    paths: list[str] = []
    for device in islice(message.linux.devices, _MAX_ENTRIES_READ):
        if device.major == _MEMORY_MAJOR or device.path.startswith(_MIG_PATH):
            return None
        if device.major == _GPU_MAJOR and device.type == "c" and 0 <= device.minor < _FIRST_OTHER:
            # The path inside the container may differ.
            paths.append(f"/dev/nvidia{device.minor}")
    return if_plausible(requested_gpus(env={}, nodes=paths))


def if_plausible(found: Injection | None) -> Injection | None:
    """Return `found`, or None if it is implausible: any user can write an environment."""
    if found is None or len(found.devices) > _MAX_DEVICES:
        return None
    return found if all(len(device.text) <= LONGEST for device in found.devices) else None


def _cdi_names(message: Any) -> Iterable[str]:
    return (device.name for device in islice(message.CDI_devices, _MAX_ENTRIES_READ))


def _annotations(message: Any) -> dict[str, str]:
    pairs = islice(message.annotations.items(), _MAX_ENTRIES_READ)
    return {key: value for key, value in pairs if len(value) <= _LONGEST_VALUE}


def _is_sandbox(message: Any) -> bool:
    return message.id == message.pod_sandbox_id or any(
        message.annotations.get(key) == "sandbox" for key in _SANDBOX
    )
