"""The innermost layer: what runtime and plugin say to each other, nri.pkg.api.v1alpha1."""

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
    """What a runtime tells of, by its numbers."""

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
        """Its bit in a plugin's mask of events."""
        return 1 << (self - 1)


METHODS: Final[Mapping[str, Event]] = {
    "".join(word.capitalize() for word in event.name.split("_")): event for event in Event
}
"""Methods of the plugin that tell of one event each. Runtimes with NRI before 0.12 have a method of
their own for few of them, and StateChange for the others."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Who is at the other end."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about: a pod, encoded, and a container of it, encoded or empty."""

    pod: bytes
    container: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of all pods and containers, each encoded; a container may come before its pod.

    Attributes:
        more: another part follows.
    """

    pods: Sequence[bytes]
    containers: Sequence[bytes]
    more: bool


def read_runtime(data: bytes) -> Runtime:
    """Read the argument of Configure."""
    told = _decode("ConfigureRequest", data)
    return Runtime(told.runtime_name[:64], told.runtime_version[:64])


def read_chunk(data: bytes) -> Chunk:
    """Read the argument of Synchronize."""
    told = _decode("SynchronizeRequest", data)
    return Chunk(told.pods, told.containers, told.more)


def read_subject(data: bytes) -> Subject:
    """Read the argument of a method in `METHODS`."""
    told = _decode("Subject", data)
    return Subject(told.pod, told.container)


def read_state_change(data: bytes) -> tuple[int, Subject]:
    """Read the argument of StateChange: the number of an event, and what it is about."""
    told = _decode("StateChangeEvent", data)
    return told.event, Subject(told.pod, told.container)


def read_pod(data: bytes) -> Any:
    """Read a pod."""
    return _decode("PodSandbox", data)


def read_container(data: bytes) -> Any:
    """Read a container."""
    return _decode("Container", data)


def register(name: str, index: str) -> bytes:
    """Return the argument of RegisterPlugin."""
    return _encode("RegisterPluginRequest", plugin_name=name, plugin_idx=index)


def configured(mask: int) -> bytes:
    """Return the answer to Configure.

    Args:
        mask: bits of the events that are wanted; 0 would mean all.
    """
    return _encode("ConfigureResponse", events=mask)


def synchronized(*, more: bool) -> bytes:
    """Return the answer to Synchronize, which repeats whether more follows."""
    return _encode("SynchronizeResponse", more=more)


def adjusted(env: Mapping[str, str]) -> bytes:
    """Return the answer to CreateContainer: variables that the container gets."""
    pairs = [{"key": key, "value": value} for key, value in env.items()]
    return _encode("CreateContainerResponse", adjust={"env": pairs})


def _encode(name: str, **fields: Any) -> bytes:
    encoded: bytes = _message(name)(**fields).SerializeToString()
    return encoded


def _decode(name: str, data: bytes) -> Any:
    """Read a message.

    Raises:
        ProtocolError: it is none.
    """
    try:
        return _message(name).FromString(data)
    except DecodeError:
        raise ProtocolError(f"its {name} can't be read") from None


@cache
def _message(name: str) -> type[Any]:
    return _schema().message(f"nri.{name}")


@cache
def _schema() -> Schema:
    return Schema.load_from_package("sources.nri", "nri.binpb")
