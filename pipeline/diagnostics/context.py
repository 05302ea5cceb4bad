"""The context that every check gets: configuration, clock, API sessions and paths of the host."""

import asyncio
import ctypes
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from config.schema import Config
from pipeline.base.clock import Clock, SystemClock
from pipeline.component.code_permissions import NOTHING, Allowed
from pipeline.component.contracts import KubeApi
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.kube.sessions import Sessions

T = TypeVar("T")
OpenSession: TypeAlias = Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]

_DEADLINE: Final = 30.0
"""Seconds. Without its persistence daemon, the driver initialises every GPU at the first call."""


REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one request to an API server.

A server that accepts a connection and does not respond then fails the check that queries it, with a
fix for servers. Without this limit the check `check.deadline` would report it, with a general fix.
"""


_BUFFER_SIZE: Final = 512
"""Bytes; more than the size of `struct timex` on any machine (208 on 64 bits)."""
_TIME_ERROR: Final = 5
"""TIME_ERROR, which `adjtimex` returns for a clock that is not synchronised; see adjtimex(2)."""


def kernel_synchronised() -> bool | None:
    """Return whether the kernel's clock is synchronised; None if the call is not permitted.

    `modes` is 0, so the call changes nothing. Container runtimes refuse it without CAP_SYS_TIME.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = call(ctypes.create_string_buffer(_BUFFER_SIZE))
    return None if state < 0 else bool(state != _TIME_ERROR)


@dataclass(frozen=True, slots=True)
class Roots:
    """Root folders of the host's file systems. Tests use other folders.

    Attributes:
        proc: procfs.
        sys: sysfs.
        dev: device nodes.
        host: where the folders of Kubernetes distributions are searched.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    host: Path = Path("/")


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """What a check may use.

    Attributes:
        config: the whole configuration, since some checks depend on other components.
        clock: the clock; checks use no other.
        kube: opens a session with an API server, as `SourceContext.kube` does. Each request has a
            time limit.
        allowed: code from the configuration that may run.
        roots: root folders of the host's file systems.
        environ: environment variables.
        deadline: seconds that the checks of one component may take.
        synchronised: returns whether the kernel's clock is synchronised; None if unknown.
    """

    config: Config
    clock: Clock = field(default_factory=SystemClock)
    kube: OpenSession = field(
        default_factory=lambda: Sessions(request_timeout=REQUEST_TIMEOUT).session
    )
    allowed: Allowed = NOTHING
    roots: Roots = Roots()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    deadline: float = _DEADLINE
    synchronised: Callable[[], bool | None] = kernel_synchronised

    @property
    def node(self) -> str:
        """The configured node name, else the host name."""
        return self.config.node or socket.gethostname()

    def has(self, kind: str) -> bool:
        """Return whether a source of this kind is configured."""
        return any(source.kind == kind for source in self.config.sources.values())


async def in_thread(call: Callable[[], T]) -> T:
    """Run a call that may block in a daemon thread, which does not delay the end of the process."""
    thread = DaemonExecutor("doctor")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown()
