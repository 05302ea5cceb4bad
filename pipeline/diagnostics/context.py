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
"""Default time limit in seconds for the checks of one component. Without its persistence daemon,
the driver initialises every GPU at the first call."""


REQUEST_TIMEOUT: Final = 10.0
"""Time limit in seconds for one request to an API server.

It is shorter than the time limit of the checks. If a server accepts a connection and does not
respond, the check that queries it fails, with a fix for servers. Otherwise `check.deadline` would
fail, with a general fix.
"""


_BUFFER_SIZE: Final = 512
"""Bytes; more than the size of `struct timex` on any machine (208 on 64 bits)."""
_TIME_ERROR: Final = 5
"""TIME_ERROR, which `adjtimex` returns for a clock that is not synchronised; see adjtimex(2)."""


def kernel_synchronised() -> bool | None:
    """Return whether the kernel's clock is synchronised; None if `adjtimex` is missing or refused.

    The member `modes` of its argument is 0, so the call changes nothing. Container runtimes refuse
    the call without CAP_SYS_TIME.
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
        proc: folder of procfs.
        sys: folder of sysfs.
        dev: folder of the device nodes.
        host: folder in which the folders of Kubernetes distributions are searched.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    host: Path = Path("/")


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """What a check gets: configuration, clock, API sessions and paths of the host.

    Attributes:
        config: the whole configuration, since some checks depend on other components.
        clock: the clock. Checks read no other clock.
        kube: opens a session with an API server, as `SourceContext.kube` does. Each request has a
            time limit.
        allowed: the code named in the configuration that may run.
        roots: root folders of the host's file systems.
        environ: environment variables.
        deadline: time limit for the checks of one component, in seconds.
        synchronised: function that returns whether the kernel's clock is synchronised; None if
            this is unknown.
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
    """Run a call in a daemon thread, because it may block; the thread does not delay the exit."""
    thread = DaemonExecutor("doctor")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown()
