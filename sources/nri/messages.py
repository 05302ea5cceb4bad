"""The inner protocol layer: messages of runtime and plugin, nri.pkg.api.v1alpha1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final

from pipeline.net.protobuf import DecodeError, Schema
from sources.nri.errors import ProtocolError

RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"


class Event(IntEnum):
    """The events of NRI with their numbers."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def bit(self) -> int:
        """The event's bit in a plugin's event mask."""
        return 1 << (self - 1)


METHODS: Final[Mapping[str, Event]] = {
    "".join(word.capitalize() for word in event.name.split("_")): event for event in Event
}
"""The plugin's methods for single events. Runtimes with NRI before 0.12 have such a method for only
a few events, and use StateChange for the others."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Name and version of the container runtime."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an event: an encoded pod, and an encoded container of it or empty bytes."""

    pod: bytes
    container: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the list of pods and containers, each encoded; containers may precede their pods.

    Attributes:
        more: whether another part follows.
    """

    pods: Sequence[bytes]
    containers: Sequence[bytes]
    more: bool


def read_runtime(data: bytes) -> Runtime:
    """Decode the argument of Configure."""
    message = _decode("ConfigureRequest", data)
    return Runtime(message.runtime_name[:64], message.runtime_version[:64])


def read_chunk(data: bytes) -> Chunk:
    """Decode the argument of Synchronize."""
    message = _decode("SynchronizeRequest", data)
    return Chunk(message.pods, message.containers, message.more)


def read_subject(data: bytes) -> Subject:
    """Decode the argument of a method in `METHODS`."""
    message = _decode("Subject", data)
    return Subject(message.pod, message.container)


def read_state_change(data: bytes) -> tuple[int, Subject]:
    """Decode the argument of StateChange: the number of the event, and its subject."""
    message = _decode("StateChangeEvent", data)
    return message.event, Subject(message.pod, message.container)


def read_pod(data: bytes) -> Any:
    """Decode a pod."""
    return _decode("PodSandbox", data)


def read_container(data: bytes) -> Any:
    """Decode a container."""
    return _decode("Container", data)


def register(name: str, index: str) -> bytes:
    """Return the argument of RegisterPlugin."""
    return _encode("RegisterPluginRequest", plugin_name=name, plugin_idx=index)


def configured(mask: int) -> bytes:
    """Return the response to Configure.

    Args:
        mask: bits of the events that the plugin subscribes to; 0 would mean all.
    """
    return _encode("ConfigureResponse", events=mask)


def synchronized(*, more: bool) -> bytes:
    """Return the response to Synchronize, which repeats whether more parts follow."""
    return _encode("SynchronizeResponse", more=more)


def adjusted(env: Mapping[str, str]) -> bytes:
    """Return the response to CreateContainer: variables to set in the container."""
    pairs = [{"key": key, "value": value} for key, value in env.items()]
    return _encode("CreateContainerResponse", adjust={"env": pairs})


def _encode(name: str, **fields: Any) -> bytes:
    encoded: bytes = _message(name)(**fields).SerializeToString()
    return encoded


def _decode(name: str, data: bytes) -> Any:
    """Decode a message.

    Raises:
        ProtocolError: the message is invalid.
    """
    try:
        return _message(name).FromString(data)
    except DecodeError:
        raise ProtocolError(f"the runtime sent an invalid {name}") from None


@cache
def _message(name: str) -> type[Any]:
    return _schema().message(f"nri.{name}")


@cache
def _schema() -> Schema:
    return Schema.load_from_package("sources.nri", "nri.binpb")
