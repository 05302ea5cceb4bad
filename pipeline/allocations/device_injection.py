"""Device injection: which GPUs a container requests from the container runtime.

The NVIDIA container toolkit uses CDI names first, then mounts with paths that name devices, then an
environment variable. Device nodes count only if none of these names a GPU.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, TypeAlias

from pipeline.model import RawDeviceId

InjectionMethod: TypeAlias = Literal["cdi", "mounts", "env", "nodes"]
"""How GPUs are named: by CDI names, paths of mounts, an environment variable, or device nodes."""

ENV: Final = "NVIDIA_VISIBLE_DEVICES"
"""The environment variable that names the GPUs of a container."""

_MOUNTS = "/var/run/nvidia-container-devices/"
_ANNOTATIONS = ("cdi.k8s.io/", "nvidia.cdi.k8s.io/")
_CDI = re.compile(
    r"([A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)/([A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
    r"=([A-Za-z0-9](?:[A-Za-z0-9:._-]*[A-Za-z0-9])?)"
)
_CLAIMS = ("k8s.gpu.nvidia.com", "claim")
# CDI vendor that gives every GPU to the containers of operators.
_MANAGEMENT = "management.nvidia.com"
_NODE = re.compile(r"/dev/nvidia([0-9]{1,7})")  # not nvidiactl, nvidia-uvm or nvidia-caps
# Values that name no device: all GPUs, only the driver's files, nothing. Images often set them.
_EVERYTHING = "all"
_NO_DEVICES = {_EVERYTHING, "none", "void"}


@dataclass(frozen=True, slots=True)
class Injection:
    """The GPUs that a container requests.

    Attributes:
        method: how the GPUs are named.
        devices: the GPUs in the order in which they are named, each once. Their scheme is `cdi` for
            CDI names, `minor` for device nodes, and `visible` for other names in the environment or
            in mounts.
    """

    method: InjectionMethod
    devices: tuple[RawDeviceId, ...]


def requested_gpus(
    *,
    env: Mapping[str, str],
    mounts: Iterable[str] = (),
    nodes: Iterable[str] = (),
    cdi: Iterable[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> Injection | None:
    """Return the GPUs that a container requests, by the method with the highest precedence.

    Args:
        env: environment of the container.
        mounts: paths in the container at which something is mounted.
        nodes: paths of device nodes in the container. Do not pass those of a privileged container:
            it has all device nodes, so they do not show what it requests.
        cdi: CDI names.
        annotations: annotations of the container. Some may contain CDI names.

    Returns:
        The GPUs; None if no method names one. `all` names no GPU, because none was allocated.
    """
    methods: tuple[tuple[InjectionMethod, Iterable[RawDeviceId]], ...] = (
        ("cdi", chain(_by_names(cdi), *(gpus for _, gpus in annotated_gpus(annotations or {})))),
        ("mounts", _by_elements(_mounted(mounts))),
        ("env", _by_elements(env.get(ENV, "").split(","))),
        ("nodes", _by_nodes(nodes)),
    )
    for method, devices in methods:
        if distinct := tuple(dict.fromkeys(devices)):
            return Injection(method, distinct)
    return None


def gpu_by_cdi(name: str) -> RawDeviceId | None:
    """Return the GPU that a CDI name means; None for another kind of device, and for all GPUs."""
    parts = _CDI.fullmatch(name)
    if parts is None:
        return None
    vendor, class_, device = parts.groups()
    gpus = (vendor, class_) == _CLAIMS or (class_ == "gpu" and vendor != _MANAGEMENT)
    return RawDeviceId("cdi", name) if gpus and device != _EVERYTHING else None


def annotated_gpus(annotations: Mapping[str, str]) -> Iterator[tuple[str, tuple[RawDeviceId, ...]]]:
    """Yield the keys of annotations with CDI names of GPUs, sorted, each with its GPUs."""
    for key, value in sorted(annotations.items()):
        if key.startswith(_ANNOTATIONS):
            found = tuple(dict.fromkeys(_by_names(name.strip() for name in value.split(","))))
            if found:
                yield key, found


def _by_names(names: Iterable[str]) -> Iterator[RawDeviceId]:
    return (gpu for name in names if (gpu := gpu_by_cdi(name)) is not None)


def _by_elements(elements: Iterable[str]) -> Iterator[RawDeviceId]:
    """Yield the devices that elements of `NVIDIA_VISIBLE_DEVICES` name."""
    names = [name for element in elements if (name := element.strip())]
    if not _NO_DEVICES.isdisjoint(names):
        return
    for name in names:
        if "=" in name:
            yield from _by_names((name,))
        elif not name.startswith("/"):  # a path means that the mounts name the devices
            yield RawDeviceId("visible", name)


def _mounted(paths: Iterable[str]) -> Iterator[str]:
    """Yield the devices that paths of mounts name, in the form of the environment variable."""
    for path in paths:
        kind, _, name = path.removeprefix(_MOUNTS).partition("/")
        if not path.startswith(_MOUNTS) or kind == "imex":
            continue
        if kind != "cdi":
            # The id of a MIG instance of drivers before R470 contains slashes.
            yield f"{kind}/{name}" if name else kind
        elif "=" in name:
            yield name
        else:
            vendor_and_class, _, device = name.rpartition("/")
            yield f"{vendor_and_class}={device}"


def _by_nodes(paths: Iterable[str]) -> Iterator[RawDeviceId]:
    for path in paths:
        if found := _NODE.fullmatch(path):
            yield RawDeviceId("minor", str(int(found[1])))
