"""A server with the part of Docker's API that podgpu uses, on a Unix socket.

`python -m tests.fakes.docker PATH` serves one container on a socket until it is killed.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.owners import container_id_of

STARTED = "2026-11-28T10:00:00.123456789Z"


def described(
    name: str,
    *,
    env: tuple[str, ...] = (),
    image: str = "nvidia/cuda:13.0",
    labels: dict[str, str] | None = None,
    started: str = STARTED,
    pid: int = 4242,
    running: bool = True,
    runtime: str = "runc",
    **host: Any,
) -> dict[str, Any]:
    """Return what the API says about a container.

    Args:
        name: its name; its id belongs to the name.
        env: its variables.
        image: the image that it was created from.
        labels: its labels.
        started: when it started.
        pid: pid of its first process.
        running: whether it runs.
        runtime: the low-level runtime.
        host: further keys of `HostConfig`.
    """
    return {
        "Id": container_id_of(name),
        "Name": f"/{name}",
        "Image": "sha256:" + "0" * 64,
        "State": {"Running": running, "Pid": pid if running else 0, "StartedAt": started},
        "Config": {"Image": image, "Env": list(env), "Labels": labels or {}},
        "HostConfig": {"Runtime": runtime, "Devices": [], "DeviceRequests": None, **host},
    }


class FakeDocker:
    """The daemon.

    Attributes:
        containers: descriptions of all containers by id.
        version: the response to `/version`.
        requests: paths of all requests.
        status: status of all responses, if it is not 200.
        replaced: responses to paths with this first part.
        refused: ids of containers that are listed, and not described: status 500.
    """

    def __init__(self, *containers: dict[str, Any]) -> None:
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self.containers: dict[str, dict[str, Any]] = {}
        for one in containers:
            self.put(one)
        self.version: dict[str, Any] = {
            "Version": "20.10.24",
            "Components": [{"Name": "Engine", "Version": "20.10.24"}],
        }
        self.requests: list[str] = []
        self.status = 200
        self.replaced: dict[str, object] = {}
        self.refused: set[str] = set()

    def put(self, container: dict[str, Any], action: str = "start") -> None:
        """Add or change a container, and report it."""
        self.containers[container["Id"]] = container
        self.report(container["Id"], action)

    def end(self, name: str, *, remove: bool = False) -> None:
        """End a container, and report it."""
        container_id = container_id_of(name)
        if remove:
            del self.containers[container_id]
        else:
            self.containers[container_id]["State"] |= {"Running": False, "Pid": 0}
        self.report(container_id, "die")

    def report(self, container_id: str, action: str, kind: str = "container") -> None:
        event = {"Type": kind, "Action": action, "Actor": {"ID": container_id, "Attributes": {}}}
        self.send(json.dumps(event).encode() + b"\n")

    def send(self, data: bytes) -> None:
        """Send bytes on all streams of events."""
        for stream in self._streams:
            stream.put_nowait(data)

    def close_streams(self) -> None:
        for stream in self._streams:
            stream.put_nowait(None)

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[Path]:
        app = web.Application()
        app.router.add_get("/events", self._events)
        app.router.add_get("/{path:.*}", self._respond)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.UnixSite(runner, str(path)).start()
        try:
            yield path
        finally:
            self.close_streams()
            await runner.cleanup()
            path.unlink(missing_ok=True)

    async def _respond(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        parts = request.path.strip("/").split("/")
        content: object
        if self.status != 200:
            return web.json_response({"message": "refused"}, status=self.status)
        if parts[0] in self.replaced:
            return web.json_response(self.replaced[parts[0]])
        if parts == ["version"]:
            content = self.version
        elif parts == ["containers", "json"]:
            asked = json.loads(request.query.get("filters", "{}")).get("status", ["running"])
            content = [{"Id": key} for key, one in self.containers.items() if _status(one) in asked]
        elif parts[0] == "containers" and parts[1] in self.refused:
            return web.json_response({"message": "layer not known"}, status=500)
        elif parts[0] == "containers" and parts[1] in self.containers:
            content = self.containers[parts[1]]
        else:
            return web.json_response({"message": "no such container"}, status=404)
        return web.json_response(content)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        response = web.StreamResponse()
        await response.prepare(request)
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.add(stream)
        try:
            while (data := await stream.get()) is not None:
                await response.write(data)
        finally:
            self._streams.discard(stream)
        return response


def _status(container: dict[str, Any]) -> str:
    """Return what Podman filters by. Docker lists containers that are paused as running."""
    state = container["State"]
    if state is None or state["Running"]:
        return "running"
    return "paused" if state.get("Paused") else "exited"


async def _serve(path: Path) -> None:
    fake = FakeDocker(
        described("trainer", DeviceRequests=[{"Count": -1, "Capabilities": [["gpu"]]}])
    )
    async with fake.serving(path):
        while True:
            await asyncio.sleep(0.2)
            fake.put(described("trainer", pid=4243))
            await asyncio.sleep(0.2)
            fake.put(described("trainer", pid=4242))


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
