"""An event loop that ends the processes that were started in it, and all that those started."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from typing import Any, Final

_REAPED: Final = 2.0
"""Seconds that the kernel may take to end a process; one that waits for a disk stays for longer."""


class PluginLoop(asyncio.SelectorEventLoop):
    """Runs each process in a session of its own, where nobody is there to answer its questions.

    Args:
        allowed: whether processes may be started at all.

    Attributes:
        commands: what was started, in that order.
        refused: what was not allowed, in that order.
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
            PermissionError: none may be started.
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
        """End all that was started and is still there, and take note of its end.

        What made a session of its own escapes.
        """
        for transport in self._started:
            with suppress(OSError):
                _kill(transport)
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAPED):
                # Nothing public tells of a transport's end.
                while any(each.get_returncode() is None for each in self._started):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        for transport in self._started:
            transport.close()


def _kill(transport: asyncio.SubprocessTransport) -> None:
    leader = transport.get_pid()
    if transport.get_returncode() is not None:
        # What it left behind keeps its number from being given away; gone without anything left,
        # the number may be a stranger's by now.
        with suppress(ProcessLookupError):
            os.kill(leader, 0)
            return
    os.killpg(leader, signal.SIGKILL)
