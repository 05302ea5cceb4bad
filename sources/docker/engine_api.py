"""The part of Docker's API that the source uses, which Podman has too. All requests are GETs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from config.value_types import ByteSize
from pipeline.base.errors import ResponseError, TransientError
from pipeline.base.safe_text import line
from pipeline.model import ContainerRuntime
from sources.docker.containers import CONTAINER_ID

MAX_RESPONSE: Final = ByteSize.parse("16MiB")
MAX_CONTAINERS: Final = 5_000
"""Maximum number of running containers."""

_PODMAN: Final = "Podman Engine"
_LIST: Final = "/containers/json"
_PODMAN_LIST: Final = (
    _LIST + "?all=true&filters=" + quote(json.dumps({"status": ["running", "paused"]}))
)
"""Podman lists paused containers only if asked. Docker always does, and it lists restarting ones,
for which Podman has no name."""
_ACTIONS: Final = ("start", "die", "died", "destroy", "remove", "rename", "restore", "update")
"""Docker's and Podman's names of the changes that matter. Others, such as those of health checks,
come often."""


class Client(Protocol):
    """What the API needs of an HTTP client; see `pipeline.net.unix_http.UnixHttp`."""

    async def get(self, path: str) -> bytes:
        """Return the body of a response."""

    async def find(self, path: str) -> bytes | None:
        """Return the body of a response; None if there is no such object."""

    def lines(self, path: str) -> Any:
        """Open a stream of lines."""


class Daemon(NamedTuple):
    """The program that responds.

    Attributes:
        runtime: `docker` or `podman`.
        version: its version, for people.
    """

    runtime: ContainerRuntime
    version: str


class EngineApi:
    """Reads containers and their events.

    Args:
        client: sends the requests.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def daemon(self) -> Daemon:
        """Return which daemon responds.

        Raises:
            TransientError: it does not respond, or not as Docker or Podman.
        """
        found = _object(await self._client.get("/version"), "/version")
        components = [each for each in found.get("Components") or () if isinstance(each, dict)]
        is_podman = any(each.get("Name") == _PODMAN for each in components)
        version = line(str(found.get("Version", "")), 64)
        return Daemon("podman" if is_podman else "docker", version)

    async def running(self, runtime: ContainerRuntime) -> set[str]:
        """Return the ids of the running and paused containers, also of those of pods.

        Args:
            runtime: which daemon responds.

        Raises:
            TransientError: there is no valid response, or there are more than `MAX_CONTAINERS`.
        """
        path = _PODMAN_LIST if runtime == "podman" else _LIST
        listed = _json(await self._client.get(path), _LIST)
        if not isinstance(listed, list):
            raise ResponseError(f"the response to {_LIST} is not a list")
        found = {
            each["Id"]
            for each in listed
            if isinstance(each, dict)
            and isinstance(each.get("Id"), str)
            and CONTAINER_ID.fullmatch(each["Id"])
        }
        if len(found) > MAX_CONTAINERS:
            raise TransientError(
                f"more than {MAX_CONTAINERS} containers run; podgpu supports no more"
            )
        return found

    async def describe(self, container_id: str) -> dict[str, Any] | None:
        """Return the description of a container; None if there is no such container.

        Raises:
            ResponseError: the daemon responds, but does not describe this container.
            TransientError: the daemon does not respond.
        """
        path = f"/containers/{container_id}/json"
        body = await self._client.find(path)
        return None if body is None else _object(body, path)

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[AsyncIterator[str]]:
        """Open the stream of events: ids of containers that started, ended or changed.

        An empty id means that the changed container is unknown.

        Raises:
            TransientError: on entry, there is no valid response; in the iteration, the connection
                broke.
        """
        filters = json.dumps({"type": ["container"], "event": list(_ACTIONS)})
        async with self._client.lines(f"/events?filters={quote(filters)}") as lines:
            yield _ids(lines)


async def _ids(lines: AsyncIterator[bytes]) -> AsyncIterator[str]:
    async for text in lines:
        try:
            event = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            event = {}
        if not isinstance(event, dict):
            event = {}
        # A daemon that ignores the filter also reports networks, images and health checks.
        if event.get("Type", "container") != "container":
            continue
        actor = event.get("Actor")
        found = actor.get("ID") if isinstance(actor, dict) else None
        if not isinstance(found, str) or not CONTAINER_ID.fullmatch(found):
            yield ""
        elif event.get("Action", event.get("status")) in _ACTIONS:
            yield found


def _object(body: bytes, path: str) -> dict[str, Any]:
    found = _json(body, path)
    if not isinstance(found, dict):
        raise ResponseError(f"the response to {path} is not an object")
    return found


def _json(body: bytes, path: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ResponseError(f"the response to {path} is not JSON") from None
