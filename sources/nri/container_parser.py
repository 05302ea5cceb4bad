"""From a container as the runtime tells of it, with environment and mounts, to what is needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pipeline.allocations.device_injection import ENV, Injection, annotated_gpus, requested_gpus
from pipeline.model import RawDeviceId
from sources.nri import messages
from sources.nri.text_limits import LONGEST, names, names_all_gpus, plausible

STOPPED: Final = 4
"""The state of a container whose process has ended."""

_MAX_ENTRIES_READ: Final = 20_000
"""Variables, mounts, devices and annotations of one container. A service of its namespace is seven
variables, and a thousand services are many."""

_MAX_DEVICES: Final = 256
"""Devices that one container is given; twice as many as a node has."""

_LONGEST_VALUE: Final = 1 << 14
_LONGEST_PATH: Final = 4096

_SANDBOX: Final = {"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"}

_GPU_MAJOR: Final = 195
_FIRST_OTHER: Final = 248
"""Minor numbers from here on are the driver's control devices, such as /dev/nvidiactl."""
_MEMORY_MAJOR: Final = 1
"""Of /dev/null, /dev/zero, /dev/kmsg: every container has these without being given them. One that
lists them lists all devices of the host: it is privileged."""
_MIG: Final = "/dev/nvidia-caps/"


@dataclass(frozen=True, slots=True)
class Container:
    """A container.

    Attributes:
        id: the runtime's.
        sandbox: the runtime's id of its pod.
        name: in the pod.
        state: as the runtime numbers them.
        pid: of its first process, in the host's pid namespace; None before there is one.
        created_ns: Unix time; 0 where the runtime doesn't tell.
        started_ns: likewise.
        cgroup: its path, as the runtime was asked for it; empty when unknown.
        gpus_by_name: GPUs that its CDI devices, mounts or its environment name.
        gpus_by_annotation: GPUs that its annotations name by CDI, by the annotation's key.
        gpus_by_node: GPUs whose device nodes it was given.
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


def read_container(data: bytes) -> Container | None:
    """Read a container; None if it is none of a pod's, or is the pod's sandbox.

    Raises:
        ProtocolError: it can't be read.
    """
    told = messages.read_container(data)
    if not plausible(told.id, told.pod_sandbox_id, told.name) or _is_sandbox(told):
        return None
    cgroup = told.linux.cgroups_path
    return Container(
        told.id,
        told.pod_sandbox_id,
        told.name,
        told.state,
        told.pid or None,
        max(told.created_at, 0),
        max(told.started_at, 0),
        cgroup if len(cgroup) <= _LONGEST_PATH else "",
        _named(told, {}),
        _by_nodes(told),
        tuple(annotated_gpus(_annotations(told))),
    )


def visible_devices(message: Any) -> str | None:
    """Return `NVIDIA_VISIBLE_DEVICES` of an unread container; None if it isn't set."""
    found = None
    for variable in islice(message.env, _MAX_ENTRIES_READ):
        key, _, value = variable.partition("=")
        if key == ENV:
            found = value
    return found


def requested_by_name(message: Any) -> Injection | None:
    """Return the GPUs that an unread container is told to get by name."""
    return _named(message, _annotations(message))


def _named(message: Any, annotations: dict[str, str]) -> Injection | None:
    value = visible_devices(message) or ""
    return if_plausible(
        requested_gpus(
            env={ENV: value if len(value) <= _LONGEST_VALUE else ""},
            mounts=(mount.destination for mount in islice(message.mounts, _MAX_ENTRIES_READ)),
            cdi=(device.name for device in islice(message.CDI_devices, _MAX_ENTRIES_READ)),
            annotations=annotations,
        )
    )


def _by_nodes(message: Any) -> Injection | None:
    """Return the GPUs whose nodes the container was given by somebody.

    A privileged one has all, an operator's may be given all, and one that has a MIG instance needs
    the node of the whole GPU: their nodes tell nothing.
    """
    if names_all_gpus(_cdi(message)):
        return None
    paths: list[str] = []
    for device in islice(message.linux.devices, _MAX_ENTRIES_READ):
        if device.major == _MEMORY_MAJOR or device.path.startswith(_MIG):
            return None
        if device.major == _GPU_MAJOR and device.type == "c" and 0 <= device.minor < _FIRST_OTHER:
            # Its path may be another inside the container.
            paths.append(f"/dev/nvidia{device.minor}")
    return if_plausible(requested_gpus(env={}, nodes=paths))


def if_plausible(found: Injection | None) -> Injection | None:
    """Return what is found unless no node has such devices: anybody can write an environment."""
    if found is None or len(found.devices) > _MAX_DEVICES:
        return None
    return found if all(len(device.text) <= LONGEST for device in found.devices) else None


def _cdi(message: Any) -> Iterator[str]:
    yield from (device.name for device in islice(message.CDI_devices, _MAX_ENTRIES_READ))
    for value in _annotations(message).values():
        yield from names(value)


def _annotations(message: Any) -> dict[str, str]:
    pairs = islice(message.annotations.items(), _MAX_ENTRIES_READ)
    return {key: value for key, value in pairs if len(value) <= _LONGEST_VALUE}


def _is_sandbox(message: Any) -> bool:
    return message.id == message.pod_sandbox_id or any(
        message.annotations.get(key) == "sandbox" for key in _SANDBOX
    )
