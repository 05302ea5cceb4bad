"""An event loop that can kill all processes started in it, with their child processes."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from typing import Any, Final

_KILL_TIMEOUT: Final = 2.0
"""Seconds in which the kernel ends a process; one that waits for a disk takes longer."""


class PluginLoop(asyncio.SelectorEventLoop):
    """Runs each process in its own session and without standard input, so it cannot prompt.

    Args:
        allowed: whether processes may be started at all.

    Attributes:
        commands: the programs that were started, in order.
        refused: the programs that were not allowed, in order.
    """

    def __init__(self, *, allowed: bool) -> None:
        super().__init__()
        self.commands: list[str] = []
        self.refused: list[str] = []
        self._allowed = allowed
        self._started: list[asyncio.SubprocessTransport] = []

    async def subprocess_exec(
        self, protocol_factory: Any, program: Any, *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        """Start a process, as `asyncio.create_subprocess_exec` does.

        Raises:
            PermissionError: no process may be started.
        """
        if not self._allowed:
            self.refused.append(os.fsdecode(program))
            raise PermissionError(f"{os.fsdecode(program)} may not be started")
        options |= {"stdin": subprocess.DEVNULL, "start_new_session": True}
        self.commands.append(os.fsdecode(program))
        transport, protocol = await super().subprocess_exec(
            protocol_factory, program, *args, **options
        )
        self._started.append(transport)
        return transport, protocol

    async def kill(self) -> None:
        """Kill all started processes that still run, and wait for their end.

        A child process that started its own session is not killed.
        """
        for transport in self._started:
            with suppress(OSError):
                _kill(transport)
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_TIMEOUT):
                # asyncio has no public event for the end of a transport.
                while any(each.get_returncode() is None for each in self._started):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        for transport in self._started:
            transport.close()


def _kill(transport: asyncio.SubprocessTransport) -> None:
    leader = transport.get_pid()
    if transport.get_returncode() is not None:
        # The leader has ended, but its group may have processes. While it has, the kernel does not
        # reuse the PID. So if the PID exists, the group is empty, and the PID is another process'.
        with suppress(ProcessLookupError):
            os.kill(leader, 0)
            return
    os.killpg(leader, signal.SIGKILL)
