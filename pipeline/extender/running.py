"""The process: follows the Nodes, listens, and ends when it is told to."""

import asyncio
import logging
import platform
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from config.schema import Http
from config.types import ListenAddress
from pipeline.backoff import Backoff
from pipeline.clock import Clock, SystemClock
from pipeline.contracts import HttpHandler, HttpRequest, HttpResponse, KubeApi
from pipeline.errors import TransientError
from pipeline.exposition.tail import tail
from pipeline.exposition.text import Format
from pipeline.extender.nodes import PATH, Distiller, Nodes
from pipeline.extender.service import Service, Verb
from pipeline.footprint import settle
from pipeline.http import Limits
from pipeline.kube.reflector import Reflector
from pipeline.kube.sessions import Sessions
from pipeline.model import NS
from pipeline.process import ProcessFigures
from pipeline.serving import Serving
from pipeline.telemetry import FamilyPoints, Point, Telemetry
from pipeline.topology.annotation import KEY
from pipeline.version import VERSION

RESOURCE: Final = "nvidia.com/gpu"
"""What NVIDIA's device plugin calls its GPUs."""

BODY_BYTES: Final = 16 << 20
"""Of a question: some thousand whole nodes, or the names of all that may be in one."""

CONNECTIONS: Final = 96
"""Open connections of all clients together; a scheduler has a few."""

BYTES: Final = 4 << 20
"""Bytes of requests and answers of all clients together, without the largest one."""

_ABOUT: Final = b"""podgpu extender: tells kube-scheduler which nodes have the GPUs that a pod wants

POST /filter      which nodes the pod fits on
POST /prioritize  how well it fits on each
/metrics          for Prometheus
/healthz          whether podgpu works
/readyz           whether the cluster's nodes are known
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says.

    Attributes:
        listen: where the scheduler asks.
        kubeconfig: credentials, by a program that it names if need be; None for those of the pod
            it runs in.
        annotation: key of the Nodes' annotation.
        resources: names of the resources that are GPUs.
        web_config: who is let in, and whether by TLS; None for everybody.
        timeout: seconds in which there is an answer.
        allowed_hosts: further names by which it may be asked.
    """

    listen: ListenAddress
    kubeconfig: Path | None = None
    annotation: str = KEY
    resources: Sequence[str] = (RESOURCE,)
    web_config: Path | None = None
    timeout: float = 3.0
    allowed_hosts: Sequence[str] = ()


class Extender:
    """One scheduler extender.

    Attributes:
        port: that is listened on, once it is.

    Args:
        settings: what it does.
        clock: where all times come from.
        kube: joins a session with the API server; by default one of its own.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        kube: Callable[[Path | None], AbstractAsyncContextManager[KubeApi]] | None = None,
    ) -> None:
        self.port = settings.listen.port
        self._settings = settings
        self._clock = clock or SystemClock()
        self._kube = kube or Sessions(instead="give --kubeconfig", plugins=True).join
        self._log = logging.getLogger("podgpu.extender")
        self._telemetry = Telemetry()
        self._process = ProcessFigures(self._clock)
        self._nodes = Nodes(self._log)
        self._service = Service(
            self._nodes,
            settings.resources,
            settings.timeout,
            clock=self._clock,
            telemetry=self._telemetry,
            log=self._log,
        )
        pages = {"/": (_about, ""), "/metrics": (self._metrics, "metrics for Prometheus")}
        self._serving = Serving(
            socket.gethostname(),
            lambda: (True, "ok"),
            self._ready,
            MappingProxyType(pages),
            web_setting="--web-config",
            hosts_setting="--allowed-host",
            limits=Limits(connections=CONNECTIONS, bytes=BYTES),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Follow and answer until `stop` is set.

        Raises:
            PermanentError: the address can't be listened on, or the web config is wrong.
            ExceptionGroup: there is a bug.
        """
        try:
            settings = self._settings
            await self._serving.enter(
                Http(web_config=settings.web_config, allowed_hosts=tuple(settings.allowed_hosts))
            )
            async with AsyncExitStack() as stack:
                await self._listen(stack)
                group = await stack.enter_async_context(asyncio.TaskGroup())
                following = group.create_task(self._follow(), name="nodes")
                settle()
                await stop.wait()
                following.cancel()
        finally:
            await self._serving.leave()
            self._service.close()
            self._nodes.close()

    async def _listen(self, stack: AsyncExitStack) -> None:
        mounts = await stack.enter_async_context(self._serving.listen(self._settings.listen))
        asked: tuple[tuple[Verb, HttpHandler, str], ...] = (
            ("filter", self._service.filter, "which nodes a pod fits on"),
            ("prioritize", self._service.prioritize, "how well it fits on each"),
        )
        for verb, handler, title in asked:
            mounts.mount(
                f"/{verb}",
                handler,
                title=title,
                methods=("POST",),
                body_bytes=BODY_BYTES,
                refused=partial(self._service.refused, verb),
            )
        self.port = mounts.port

    async def _follow(self) -> None:
        """Follow the Nodes for ever, and wait for credentials where there are none."""
        backoff, told = Backoff(), ""
        settings = self._settings
        while True:
            try:
                async with self._kube(settings.kubeconfig) as api:
                    await Reflector(
                        api,
                        PATH,
                        {},
                        Distiller(settings.annotation, settings.resources),
                        self._nodes,
                        clock=self._clock,
                    ).run()
            except TransientError as error:
                if str(error) != told:
                    told = str(error)
                    self._log.warning("%s", told)
                await self._clock.sleep(backoff.delay(0))

    def _ready(self) -> tuple[bool, str]:
        if not self._nodes.complete:
            return False, "the cluster's nodes are not known yet"
        return True, "ready"

    async def _metrics(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse(tail(Format.TEXT, self._collected()), Format.TEXT.content_type)

    def _collected(self) -> list[FamilyPoints]:
        now = self._clock.now().wall_ns / NS
        labels = (("version", VERSION), ("python", platform.python_version()))
        return self._telemetry.collect(
            {
                "podgpu_build_info": [Point(labels, 1)],
                "podgpu_extender_up": [Point((), float(self._nodes.followed))],
                "podgpu_extender_nodes": [
                    Point((("state", state),), count)
                    for state, count in self._nodes.count(now).items()
                ],
                **self._process.points(),
            }
        )


async def _about(_: HttpRequest) -> HttpResponse:
    return HttpResponse(_ABOUT)
