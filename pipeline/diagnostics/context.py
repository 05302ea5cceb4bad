"""What a check may use."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from config.schema import Config
from pipeline.base.clock import Clock, SystemClock
from pipeline.component.code_permissions import NOTHING, Allowed
from pipeline.diagnostics.api_timeout import Join, with_timeout
from pipeline.diagnostics.clock_sync import kernel_synchronised
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.kube.sessions import Sessions

T = TypeVar("T")

_DEADLINE: Final = 30.0
"""Seconds: without its persistence daemon the driver starts every GPU at the first call."""


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the machine shows itself; tests have folders of their own.

    Attributes:
        proc: procfs.
        sys: sysfs.
        dev: device nodes.
        host: where the folders of other distributions are looked for.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    host: Path = Path("/")


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """Lent to every check.

    Attributes:
        config: the whole configuration: some checks depend on what else is there.
        clock: the only clock.
        kube: joins a session with an API server, as `SourceContext.kube` does; every answer is
            waited for so long and no longer.
        allowed: code that the configuration leads to and that may run.
        roots: where the machine shows itself.
        environ: variables of the environment.
        deadline: seconds that the checks of one component may take.
        synchronised: whether the kernel's clock is; None where that can't be told.
    """

    config: Config
    clock: Clock = field(default_factory=SystemClock)
    kube: Join = field(default_factory=lambda: with_timeout(Sessions().session))
    allowed: Allowed = NOTHING
    roots: Roots = Roots()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    deadline: float = _DEADLINE
    synchronised: Callable[[], bool | None] = kernel_synchronised

    @property
    def node(self) -> str:
        """The node's name: the configured one, else the machine's."""
        return self.config.node or socket.gethostname()

    def has(self, kind: str) -> bool:
        """Whether a source of that kind is configured."""
        return any(source.kind == kind for source in self.config.sources.values())


async def in_thread(call: Callable[[], T]) -> T:
    """Make a call that may block, for ever perhaps: the end of the process doesn't wait for it."""
    thread = DaemonExecutor("doctor")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown()
