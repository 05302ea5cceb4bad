"""Encode devices, containers and other values as strict JSON."""

from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

import orjson

from pipeline.model import NS, Device, PartialRef, PodInfo, owner_facts

_MAX_TIME_NS: Final = 253_402_300_799 * NS
"""The end of the year 9999, since RFC 3339 has four digits for the year."""


def rfc3339(wall_ns: int) -> str:
    """Return a wall time in UTC with microseconds: `2026-11-28T00:00:00.123456Z`."""
    seconds, rest = divmod(min(max(wall_ns, 0), _MAX_TIME_NS), NS)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest // 1000:06d}Z"


def finite(value: float) -> bool:
    """Whether a value is finite and fits into a double, so that JSON readers can hold it."""
    try:
        return isfinite(value)
    except OverflowError:  # an integer that does not fit into a double
        return False


def json_line(fields: dict[str, Any]) -> bytes:
    """Return an object as a line of JSON. Fields with the value None are left out.

    Texts and integers that orjson rejects are encoded, too.
    """
    line = {name: value for name, value in fields.items() if value is not None}
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return orjson.dumps(_replaceable(line), option=orjson.OPT_APPEND_NEWLINE)


def _replaceable(value: Any) -> Any:
    """Replace values that orjson rejects: lone surrogates, and integers of more than 64 bits.

    A lone surrogate occurs if bytes that are not UTF-8 were decoded as a name.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replaceable(key): _replaceable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaceable(item) for item in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return orjson.Fragment(str(value))
    return value


def device_object(device: Device) -> dict[str, Any]:
    """Return the known properties of a device."""
    result: dict[str, Any] = {"uuid": device.uuid}
    for name in ("index", "minor", "pci_bus_id", "model", "driver"):
        value = getattr(device, name)
        if value not in {None, ""}:
            result[name] = value
    if device.mig is not None:
        result["mig"] = {
            name: value
            for name in ("parent_uuid", "gpu_instance_id", "compute_instance_id", "profile")
            if (value := getattr(device.mig, name)) is not None
        }
    return result


def container_object(subject: PartialRef, pod: PodInfo | None) -> dict[str, Any]:
    """Return the known properties of a container and its pod.

    Of a job, and of a container without a pod: its kind, uid and facts.
    """
    if subject.kind != "pod":
        return {"kind": subject.kind, "uid": subject.uid, **owner_facts(subject, pod)}
    known = {
        "namespace": subject.namespace,
        "pod": subject.pod,
        "container": subject.container,
        "pod_uid": subject.uid,
    }
    result: dict[str, Any] = {name: text for name, text in known.items() if text}
    if pod is not None:
        result |= _pod_object(pod)
    return result


def _pod_object(pod: PodInfo) -> dict[str, Any]:
    owner = {"kind": pod.owner_kind, "name": pod.owner_name} if pod.owner_kind else None
    known = {
        "phase": pod.phase,
        "owner": owner,
        "qos_class": pod.qos,
        "labels": dict(pod.labels),
        "annotations": dict(pod.annotations),
    }
    return {name: value for name, value in known.items() if value}
