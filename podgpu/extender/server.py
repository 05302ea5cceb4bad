"""The extender's process: watches the Nodes, serves requests, and stops on a signal."""

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
from config.value_types import ListenAddress
from pipeline.base.backoff import Backoff
from pipeline.base.clock import Clock, SystemClock
from pipeline.base.errors import TransientError
from pipeline.base.telemetry import FAMILIES, Family, FamilyPoints, Point, Telemetry
from pipeline.base.version import VERSION
from pipeline.component.contracts import HttpHandler, HttpRequest, HttpResponse, KubeApi
from pipeline.exposition.text_format import Format, tail
from pipeline.host.memory_footprint import settle
from pipeline.host.process_metrics import process_points
from pipeline.http.allowed_hosts import Hosts
from pipeline.http.limits import Limits
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.kube.reflector import Reflector
from pipeline.kube.sessions import Sessions
from pipeline.model import NS
from pipeline.runtime.http_service import HttpService
from pipeline.topology.node_annotation import KEY
from podgpu.extender.node_cache import PATH, Nodes, node_record
from podgpu.extender.service import Service, Verb

EXTENDER_FAMILIES: Final = (
    Family(
        "podgpu_extender_up",
        "1 while the extender watches the cluster's Nodes, 0 while it answers from the last known "
        "state.",
    ),
    Family(
        "podgpu_extender_nodes",
        "Nodes that the extender knows, by what they report of their topology.",
    ),
    Family("podgpu_extender_requests_total", "Requests of the scheduler, by verb and result."),
    Family(
        "podgpu_extender_request_duration_seconds",
        "Time in which the extender answered a request of the scheduler.",
        summary=True,
    ),
)


RESOURCE: Final = "nvidia.com/gpu"
"""Name of the resource of NVIDIA's device plugin."""

BODY_BYTES: Final = 16 << 20
"""Maximum size of a request's body: about a thousand whole nodes, or the names of `NODES` nodes."""

CONNECTIONS: Final = 96
"""Maximum number of open connections of all clients; a scheduler has a few."""

BYTES: Final = 4 << 20
"""Maximum sum of bytes of requests and responses of all clients, without the largest one."""

_ABOUT: Final = b"""podgpu extender: filters and scores nodes for kube-scheduler by their free GPUs

POST /filter      which nodes the pod fits on
POST /prioritize  how well the pod fits on each
/metrics          for Prometheus
/healthz          whether podgpu works
/readyz           whether the cluster's nodes are known
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings from the command line.

    Attributes:
        listen: the address on which the extender listens.
        kubeconfig: path of the credentials; None for the service account of the pod. Programs that
            the file names may run.
        annotation: key of the Nodes' topology annotation.
        resources: names of the resources that are GPUs.
        web_config: path of the web configuration file with TLS and passwords; None for none.
        timeout: seconds after which a default response is sent.
        allowed_hosts: additional host names that requests may use.
    """

    listen: ListenAddress
    kubeconfig: Path | None = None
    annotation: str = KEY
    resources: Sequence[str] = (RESOURCE,)
    web_config: Path | None = None
    timeout: float = 3.0
    allowed_hosts: Sequence[str] = ()


class Extender:
    """A running scheduler extender.

    Attributes:
        port: the port of the listener; before the listener is open, the port in the settings.

    Args:
        settings: settings from the command line.
        clock: the clock; no other clock is used.
        kube: opens a session with the API server of a kubeconfig.
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
        self._kube = kube or Sessions(alternative="give --kubeconfig", plugins=True).session
        self._log = logging.getLogger("podgpu.extender")
        self._telemetry = Telemetry(families=(*FAMILIES, *EXTENDER_FAMILIES))
        self._started = self._clock.now()
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
        listeners = ListenerRegistry(
            socket.gethostname(),
            lambda: (True, "ok"),
            self._ready,
            MappingProxyType(pages),
            limits=Limits(connections=CONNECTIONS, bytes=BYTES),
            hosts=Hosts("--allowed-host"),
        )
        self._serving = HttpService(listeners, "--web-config")

    async def run(self, stop: asyncio.Event) -> None:
        """Watch Nodes and respond to requests until `stop` is set.

        Raises:
            PermanentError: podgpu cannot listen on the address, or the web configuration file is
                invalid.
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
        mounts = await stack.enter_async_context(
            self._serving.listeners.listen(self._settings.listen)
        )
        verbs: tuple[tuple[Verb, HttpHandler, str], ...] = (
            ("filter", self._service.filter, "which nodes a pod fits on"),
            ("prioritize", self._service.prioritize, "how well a pod fits on each"),
        )
        for verb, handler, title in verbs:
            mounts.mount(
                f"/{verb}",
                handler,
                title=title,
                methods=("POST",),
                body_bytes=BODY_BYTES,
                refused=partial(self._service.count, verb),
            )
        self.port = mounts.port

    async def _follow(self) -> None:
        """Watch the Nodes until cancelled; retry while there are no credentials."""
        backoff, logged = Backoff(), ""
        settings = self._settings
        while True:
            try:
                async with self._kube(settings.kubeconfig) as api:
                    await Reflector(
                        api,
                        PATH,
                        {},
                        partial(node_record, settings.annotation, settings.resources),
                        self._nodes,
                        clock=self._clock,
                    ).run()
            except TransientError as error:
                if str(error) != logged:
                    logged = str(error)
                    self._log.warning("Nodes cannot be watched, podgpu tries again: %s", logged)
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
                **process_points(self._started),
            }
        )


async def _about(_: HttpRequest) -> HttpResponse:
    return HttpResponse(_ABOUT)
