"""Converts a container, as the API describes it, to the model."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pipeline.base.clock import WallTimes
from pipeline.model import (
    Claim,
    ContainerRuntime,
    Evidence,
    Instant,
    Origin,
    PartialRef,
    PodInfo,
    RunningContainer,
    container_uid,
)
from sources.docker.gpu_requests import gpus_of

MAX_TEXT: Final = 512
"""Maximum number of characters of a name, of an image, or of a label's value."""

CONTAINER_ID: Final = re.compile("[0-9a-f]{64}")
POD_LABEL: Final = "io.kubernetes.pod.uid"
"""The kubelet's label on containers of pods, which other sources report."""
_POD_CGROUPS: Final = "kubepods"
"""A part of the name of the cgroups below which the kubelet puts the containers of pods."""

_MAX_PID: Final = 1 << 22
"""The kernel's maximum."""

_COMPOSE: Final = {
    "compose_project": ("com.docker.compose.project", "io.podman.compose.project"),
    "compose_service": ("com.docker.compose.service", "io.podman.compose.service"),
}
_ORIGIN: Final = Origin(Evidence.DEVICE_REQUEST, "configuration of the container")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def belongs_to_pod(described: Mapping[str, Any]) -> bool:
    """Return whether the kubelet created a container.

    The label is not enough: everybody who starts a container can set it, and would hide it.

    Args:
        described: the response of `GET /containers/ID/json`.
    """
    labels = _object(_object(described.get("Config")).get("Labels"))
    parent = _text(_object(described.get("HostConfig")).get("CgroupParent"))
    return POD_LABEL in labels and _POD_CGROUPS in parent


def running_container(
    described: Mapping[str, Any], runtime: ContainerRuntime, moments: WallTimes
) -> RunningContainer | None:
    """Return a container; None if it does not run, or belongs to a pod of Kubernetes.

    A paused container runs: its processes exist, and keep their memory of GPUs. For Podman it is
    paused and not running, for Docker both.

    Args:
        described: the response of `GET /containers/ID/json`.
        runtime: the daemon's name.
        moments: converts wall times.
    """
    state, config, host = (_object(described.get(key)) for key in ("State", "Config", "HostConfig"))
    labels = _object(config.get("Labels"))
    container_id = described.get("Id")
    runs = state.get("Running") is True or state.get("Paused") is True
    if not runs or belongs_to_pod(described):
        return None
    if not isinstance(container_id, str) or not CONTAINER_ID.fullmatch(container_id):
        return None
    name = _text(described.get("Name")).removeprefix("/")
    uid = container_uid(runtime, container_id)
    facts = {fact: _first(labels, keys) for fact, keys in _COMPOSE.items()}
    facts["image"] = _text(config.get("Image"))
    project = facts["compose_project"]
    info = PodInfo(
        uid,
        "",
        name,
        "Running",
        "ComposeProject" if project else "",
        project,
        labels=tuple(sorted((fact, text) for fact, text in facts.items() if text)),
    )
    subject = PartialRef(pod=name, uid=uid, container_id=container_id)
    devices = gpus_of(host, config, _text(host.get("Runtime")))
    pid = state.get("Pid")
    return RunningContainer(
        subject,
        pid if type(pid) is int and 0 < pid <= _MAX_PID else None,  # True is an int, too
        "",
        _moment(state.get("StartedAt"), moments),
        (Claim(subject, devices, None, None, _ORIGIN),) if devices else (),
        info,
    )


def _moment(value: object, moments: WallTimes) -> Instant | None:
    try:
        wall_ns = (datetime.fromisoformat(_text(value)) - _EPOCH) // _MICROSECOND * 1000
    except (ValueError, TypeError, OverflowError):  # not a time, or without a time zone
        return None
    return moments(wall_ns) if 0 < wall_ns < 1 << 63 else None


def _first(labels: Mapping[str, object], keys: tuple[str, ...]) -> str:
    return next(filter(None, (_text(labels.get(key)) for key in keys)), "")


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""
