"""The checks of `podgpu doctor` for the source `docker`: its socket, and cgroups of containers."""

from functools import partial
from itertools import islice
from typing import Final

from pipeline.base.clock import WallTimes
from pipeline.base.errors import ResponseError, TransientError
from pipeline.component.findings import FAILS, WARNS, Check, Finding
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.host import cgroups, procfs
from pipeline.model import RunningContainer
from sources.docker.containers import running_container
from sources.docker.engine_api import Daemon, EngineApi
from sources.docker.options import Options
from sources.docker.source import client

_SOCKET: Final = Check("docker.socket", FAILS)
_CGROUPS: Final = Check("docker.cgroups", WARNS)
_EXAMINED: Final = 20
"""How many containers are examined."""


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `docker.socket` and `docker.cgroups`."""
    place = str(options.socket)
    moments = WallTimes(ctx.clock.now)
    try:
        async with await in_thread(partial(client, options)) as http:
            api = EngineApi(http)
            daemon = await api.daemon()
            listed = sorted(await api.running(daemon.runtime))
            found: list[RunningContainer] = []
            for container_id in islice(listed, _EXAMINED):
                try:
                    described = await api.describe(container_id)
                except ResponseError:  # the source leaves out only this container
                    continue
                one = described and running_container(described, daemon.runtime, moments)
                if one:
                    found.append(one)
    except TransientError as error:
        fix = (
            "start the daemon (for Podman: systemctl start podman.socket), mount its socket, and "
            "run podgpu as root or in the group of the socket"
        )
        return [_SOCKET.failure(place, str(error).removeprefix(f"{place}: "), fix)]
    text = f"{daemon.runtime} {daemon.version}, {len(listed)} running containers"
    examined = await in_thread(partial(_examine_cgroups, place, daemon, found, ctx))
    return [_SOCKET.ok(place, text), examined]


def _examine_cgroups(
    place: str, daemon: Daemon, found: list[RunningContainer], ctx: DoctorContext
) -> Finding:
    """Check that processes of containers are found by their cgroups."""
    seen = 0
    for one in found:
        text = procfs.read(ctx.roots.proc / str(one.pid) / "cgroup") if one.pid else ""
        if not text:
            continue
        owner = cgroups.container_of(text)
        if owner is None or owner.container_id != one.subject.container_id:
            return _CGROUPS.warning(
                place,
                f"the cgroup of container {one.subject.pod!r} does not contain its id, so podgpu "
                "does not know which processes are its",
                f"start {daemon.runtime} with its usual cgroup manager, and containers without "
                "--cgroup-parent and with --cgroups=enabled",
            )
        seen += 1
    if not seen and any(one.pid for one in found):
        return _CGROUPS.warning(
            place,
            "no process of a running container is visible in /proc, so podgpu counts no usage of "
            "containers",
            "run podgpu in the pid namespace of the machine: docker run --pid host",
        )
    if not seen:
        return _CGROUPS.skip(place, "no container runs")
    return _CGROUPS.ok(place, f"the cgroups of {seen} containers contain their ids")
