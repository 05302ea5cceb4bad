"""Decode a device plugin's response for a container, which names the devices it allocated."""

import base64
import re
from functools import cache
from typing import Any

from pipeline.allocations.device_injection import Injection, requested_gpus
from pipeline.model import RawDeviceId
from pipeline.model.plugin_ids import without_replica
from pipeline.net.protobuf_schema import DecodeError, Schema

# Device ids of a plugin that names GPUs by device node: nvidia0, or nvidia0/gi1 for a MIG instance.
_NODE = re.compile(r"nvidia([0-9]+)(?:/gi[0-9]+)?")


class InvalidResponseError(Exception):
    """A response cannot be decoded; the text of the error gives the reason."""


def gpus_of(encoded: str) -> Injection | None:
    """Return the GPUs that a response names; None if it names none.

    Args:
        encoded: a `ContainerAllocateResponse` in base64; empty if the kubelet stored none.

    Raises:
        InvalidResponseError: the response cannot be decoded.
    """
    try:
        response = _message().FromString(base64.b64decode(encoded, validate=True))
    except ValueError:
        raise InvalidResponseError("is not base64") from None
    except DecodeError:
        raise InvalidResponseError("is not a response of a device plugin") from None
    return requested_gpus(
        env=response.envs,
        mounts=[mount.container_path for mount in response.mounts],
        nodes=[node.container_path for node in response.devices],
        cdi=[device.name for device in response.cdi_devices],
        annotations=response.annotations,
    )


def agrees_with(ids: tuple[RawDeviceId, ...], response: Injection) -> bool:
    """Return whether a response names the devices that the kubelet requested.

    Texts are compared: an index and a UUID count as different here, though they may name the same
    device, because only the driver knows that. A response that names device nodes agrees with all
    ids of MIG instances.
    """
    requested = {without_replica(raw.text).lower() for raw in ids}
    if response.method != "nodes":
        return requested == {_device(raw).lower() for raw in response.devices}
    if all(text.startswith("mig-") for text in requested):
        return True  # a device node is a whole GPU, so ids of MIG instances are more precise
    nodes = [_NODE.fullmatch(text) for text in requested]
    return {raw.text for raw in response.devices} == {node[1] if node else "" for node in nodes}


def _device(raw: RawDeviceId) -> str:
    return raw.text.rpartition("=")[2] if raw.scheme == "cdi" else raw.text


@cache
def _message() -> Any:
    schema = Schema.load_from_package("sources.checkpoint", "deviceplugin.binpb")
    return schema.message("v1beta1.ContainerAllocateResponse")
