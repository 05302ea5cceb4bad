"""Runs the program scontrol.

The program is the one on the search path of podgpu's own environment. The configuration does not
name it, since whoever writes the configuration could then run any program.
"""

import asyncio
import os
import shutil
import subprocess
import threading
from typing import Final

from pipeline.base.safe_text import line

_PROGRAM: Final = "scontrol"
_MAX_OUTPUT: Final = 4 << 20
# Times in UTC, in the usual format.
_ENV: Final = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}


_UNKNOWN_JOB: Final = "Invalid job id"


class ScontrolError(Exception):
    """scontrol is missing, or it failed, or it did not answer in time."""


class UnknownJobError(ScontrolError):
    """Slurm does not know the job: it has ended some time ago."""


class Scontrol:
    """Runs scontrol, one call at a time.

    Args:
        timeout: seconds that a call may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._turn = asyncio.Lock()

    async def job(self, job: str) -> str:
        """Return a job in one line, with the devices that it was allocated.

        Raises:
            UnknownJobError: Slurm does not know the job.
            ScontrolError: there is no answer.
        """
        return await self._run("--oneliner", "--details", "show", "job", job)

    async def node(self, name: str) -> str:
        """Return a node in one line.

        Raises:
            ScontrolError: there is no answer.
        """
        return await self._run("--oneliner", "show", "node", name)

    async def config(self) -> str:
        """Return the configuration of the cluster, with one setting in each line.

        Raises:
            ScontrolError: there is no answer.
        """
        return await self._run("show", "config")

    async def _run(self, *words: str) -> str:
        async with self._turn:
            return await asyncio.to_thread(_output, self._timeout, *words)


def _output(timeout: float, *words: str) -> str:
    """Run scontrol and return its output. Blocking.

    Args:
        timeout: seconds after which it is killed.
        words: its arguments.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise ScontrolError("scontrol is not on the search path (PATH)")
    what = f"scontrol {' '.join(words)}"
    late = threading.Event()
    try:
        process = subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_ENV},
            start_new_session=True,
        )
    except OSError as error:
        raise ScontrolError(f"{program}: {error.strerror or error}") from error

    def give_up() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout, give_up)
    timer.daemon = True
    timer.start()
    with process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        data = process.stdout.read(_MAX_OUTPUT + 1)
        if len(data) > _MAX_OUTPUT:
            process.kill()
        status = process.wait()
        timer.cancel()
    if late.is_set():
        raise ScontrolError(f"{what}: no answer within {timeout:g} s")
    if len(data) > _MAX_OUTPUT:
        raise ScontrolError(f"{what}: its answer is too long")
    text = data.decode(errors="replace")
    if status != 0:
        reason = line(text.strip(), 300)
        raise (UnknownJobError if _UNKNOWN_JOB in text else ScontrolError)(f"{what}: {reason}")
    return text
