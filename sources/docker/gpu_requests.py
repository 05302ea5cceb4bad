"""The GPUs that a container was started with, by its description in the API.

NVIDIA's runtime and the daemon give a container what its configuration names:

* device requests: `docker run --gpus`, `deploy.resources.reservations.devices` of Compose
* CDI names: `docker run --device nvidia.com/gpu=0`
* device nodes: `--device /dev/nvidia0`, and nodes that Podman added for CDI names
* the variable `NVIDIA_VISIBLE_DEVICES`, if the runtime is NVIDIA's
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final

from pipeline.allocations.device_injection import ENV, requested_gpus
from pipeline.model import RawDeviceId

MAX_DEVICES: Final = 256
"""Maximum number of devices of one container."""

ALL: Final = RawDeviceId("all", "all")

_CAPABILITIES_ENV: Final = "NVIDIA_DRIVER_CAPABILITIES"
_GPU: Final = frozenset({"gpu", "nvidia"})
_MONITORING: Final = frozenset({"utility", "compat32"})
"""The capabilities to read the state of GPUs and not to compute: programs such as nvidia-smi, and
their libraries of 32 bits."""
_ALL_CDI: Final = "nvidia.com/gpu=all"
_UNRELATED: Final = frozenset({"", "none", "void"})


def gpus_of(
    host: Mapping[str, object], config: Mapping[str, object], runtime: str
) -> tuple[RawDeviceId, ...]:
    """Return the GPUs that a container was started with, each id once.

    A container that only reads the state of GPUs (capability `utility`) holds none. Its variable
    says so, except for a device request with capabilities of its own. A privileged container holds
    none by the device nodes: it has those of the whole host.

    Args:
        host: `HostConfig` of the container.
        config: `Config` of the container.
        runtime: name of the low-level runtime.
    """
    found: dict[RawDeviceId, None] = {}
    env = _variables(config)
    only_reads = _only_reads(env)
    for request in _objects(host.get("DeviceRequests")):
        found.update(dict.fromkeys(_requested(request, only_reads=only_reads)))
    if host.get("Privileged") is not True and not only_reads:
        paths = [_text(each.get("PathOnHost")) for each in _objects(host.get("Devices"))]
        found.update(dict.fromkeys(_named(nodes=[path for path in paths if "=" not in path])))
        found.update(dict.fromkeys(_named(cdi=[path for path in paths if "=" in path])))
    if "nvidia" in PurePath(runtime).name and not only_reads:
        found.update(dict.fromkeys(_named(visible=env.get(ENV, ""))))
    return (ALL,) if ALL in found else tuple(found)[:MAX_DEVICES]


def _requested(request: Mapping[str, object], *, only_reads: bool) -> Iterator[RawDeviceId]:
    """Yield the GPUs of one element of `DeviceRequests`, as Docker reads it.

    Args:
        request: the element.
        only_reads: whether the container's variable says that it only reads the state of GPUs.
    """
    ids = [each for each in _list(request.get("DeviceIDs")) if isinstance(each, str)]
    if request.get("Driver") == "cdi":
        yield from _named(cdi=[] if only_reads else ids)
        return
    alternatives = [
        frozenset(filter(None, map(_text, _list(each))))
        for each in _list(request.get("Capabilities"))
    ]
    is_gpu = request.get("Driver") == "nvidia" or any(_GPU & each for each in alternatives)
    own = frozenset().union(*alternatives) - _GPU
    # Docker sets the variable to the capabilities of the request, if it has any.
    if not is_gpu or (_is_monitoring(own) if own else only_reads):
        return
    count = request.get("Count")
    if ids:
        yield from _named(visible=",".join(ids))
    elif isinstance(count, int) and count < 0:
        yield ALL
    elif isinstance(count, int):
        # Docker does not choose GPUs: it gives the container the first ones.
        yield from (RawDeviceId("visible", str(index)) for index in range(min(count, MAX_DEVICES)))


def _variables(config: Mapping[str, object]) -> Mapping[str, str]:
    pairs = (_text(each).partition("=") for each in _list(config.get("Env")))
    return {name: value for name, _, value in pairs if name in {ENV, _CAPABILITIES_ENV}}


def _only_reads(env: Mapping[str, str]) -> bool:
    capabilities = {each.strip() for each in env.get(_CAPABILITIES_ENV, "").split(",")} - {""}
    return _is_monitoring(frozenset(capabilities))


def _is_monitoring(capabilities: frozenset[str]) -> bool:
    return bool(capabilities) and capabilities <= _MONITORING


def _named(
    *, visible: str = "", cdi: list[str] | None = None, nodes: list[str] | None = None
) -> Iterator[RawDeviceId]:
    """Yield the GPUs that a list of names means."""
    names = {each.strip() for each in visible.split(",")}
    if "all" in names or _ALL_CDI in names or _ALL_CDI in (cdi or ()):
        yield ALL
        return
    found = requested_gpus(
        env={ENV: "" if names <= _UNRELATED else visible}, cdi=cdi or (), nodes=nodes or ()
    )
    yield from found.devices if found is not None else ()


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    return (each for each in _list(value) if isinstance(each, dict))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
