"""What a device plugin answered for a container: the devices that it handed out."""

import base64
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pipeline.allocations.device_injection import Injection, requested_gpus
from pipeline.model import RawDeviceId
from pipeline.model.plugin_ids import without_replica
from pipeline.net.protobuf import DecodeError, Schema

# A plugin that names GPUs by their nodes: nvidia0, and nvidia0/gi1 for a MIG instance of it.
_NODE = re.compile(r"nvidia([0-9]+)(?:/gi[0-9]+)?")


class InvalidResponseError(Exception):
    """The answer can't be read; the text says why."""


def gpus_of(encoded: str) -> Injection | None:
    """Return the GPUs that an answer names, None if it names none.

    Args:
        encoded: an encoded `ContainerAllocateResponse` in base64; empty where there is none.

    Raises:
        BadAnswerError: it is something else.
    """
    try:
        answer = _answer().FromString(base64.b64decode(encoded, validate=True))
    except ValueError:
        raise InvalidResponseError("is not base64") from None
    except DecodeError:
        raise InvalidResponseError("is no answer of a device plugin") from None
    return requested_gpus(
        env=answer.envs,
        mounts=[mount.container_path for mount in answer.mounts],
        nodes=[node.container_path for node in answer.devices],
        cdi=[device.name for device in answer.cdi_devices],
        annotations=answer.annotations,
    )


def agrees_with(ids: tuple[RawDeviceId, ...], answer: Injection) -> bool:
    """Return whether an answer names what the kubelet asked for, as far as the texts show.

    An index says another thing than a uuid here, though they may mean one device: nobody but the
    driver knows.
    """
    asked = {without_replica(raw.text).lower() for raw in ids}
    if answer.method != "nodes":
        return asked == {_device(raw).lower() for raw in answer.devices}
    minors = {raw.text for raw in answer.devices}
    # A node is a whole GPU: where the ids name MIG instances, they say more.
    return all(text.startswith("mig-") for text in asked) or set(_minors(asked)) == minors


def _minors(asked: set[str]) -> Iterator[str]:
    for text in asked:
        found = _NODE.fullmatch(text)
        yield found[1] if found is not None else ""


def _device(raw: RawDeviceId) -> str:
    return raw.text.rpartition("=")[2] if raw.scheme == "cdi" else raw.text


@cache
def _answer() -> Any:
    schema = Schema.load_from_package("sources.checkpoint", "deviceplugin.binpb")
    return schema.message("v1beta1.ContainerAllocateResponse")
