"""Runs scontrol and squeue.

The programs are those on the search path of podgpu's own environment. The configuration does not
name them, since whoever writes the configuration could then run any program.
"""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import subprocess
import threading
from typing import Final

from pipeline.base.safe_text import line

MAX_OUTPUT: Final = 4 << 20
"""Maximum length of an answer, in bytes."""

# Times in UTC, in the usual format.
_ENV: Final = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}
_CHUNK: Final = 1 << 16
_POLL_SECONDS: Final = 0.1
"""How long a program may continue after its call was cancelled."""
_END_SECONDS: Final = 1.0
"""How long a killed program may take to end. One that the kernel holds is left alone."""
_UNKNOWN_JOB: Final = "Invalid job id"


class SlurmError(Exception):
    """A program of Slurm is missing, or it failed, or it did not answer in time."""


class UnknownJobError(SlurmError):
    """Slurm does not know the job: it has ended some time ago."""


class TooLongError(SlurmError):
    """The answer is longer than `MAX_OUTPUT`."""


class SlurmCommands:
    """Asks Slurm, by one program at a time.

    Args:
        timeout: seconds that a program may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._turn = asyncio.Lock()

    async def job(self, job: str) -> str:
        """Return a job in one line, with the devices that it was allocated.

        Args:
            job: its id, or its place in an array (`4_7`) or in a heterogeneous job (`6+1`). For an
                id that an array or a heterogeneous job has too, the answer has all their jobs.

        Raises:
            UnknownJobError: Slurm does not know the job.
            TooLongError: there are too many jobs.
            SlurmError: there is no answer.
        """
        return await self._run("scontrol", "--oneliner", "--details", "show", "job", job)

    async def places(self, job: str) -> str:
        """Return the ids and the places of a job, and of all jobs of its array, one in each line.

        The answer contains no text of a user.

        Raises:
            UnknownJobError: Slurm does not know the job.
            SlurmError: there is no answer.
        """
        return await self._run("squeue", "--noheader", "--jobs", job, "--format", "%A %i")

    async def name(self, job: str) -> str:
        """Return the name of a job, which may contain any character, also line feeds.

        Args:
            job: as of `job`.

        Raises:
            UnknownJobError: Slurm does not know the job.
            SlurmError: there is no answer.
        """
        text = await self._run("squeue", "--noheader", "--jobs", job, "--format", "%j")
        return text.removesuffix("\n")

    async def node(self, name: str) -> str:
        """Return a node in one line.

        Raises:
            SlurmError: there is no answer.
        """
        return await self._run("scontrol", "--oneliner", "show", "node", name)

    async def config(self) -> str:
        """Return the configuration of the cluster, with one setting in each line.

        Raises:
            SlurmError: there is no answer.
        """
        return await self._run("scontrol", "show", "config")

    async def _run(self, *command: str) -> str:
        async with self._turn:
            cancelled = threading.Event()
            try:
                return await asyncio.to_thread(_output, self._timeout, cancelled, *command)
            finally:
                # The thread ends soon after, also if podgpu stops.
                cancelled.set()


def _output(timeout: float, cancelled: threading.Event, name: str, *words: str) -> str:
    """Run a program and return its output. Blocking.

    Args:
        timeout: seconds after which it is killed, with all processes that it started.
        cancelled: if it is set, the program is killed, too.
        name: the program.
        words: its arguments.
    """
    program = shutil.which(name)
    if program is None:
        raise SlurmError(f"{name} is not on the search path (PATH)")
    what = f"{name} {' '.join(words)}"
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
        raise SlurmError(f"{program}: {error.strerror or error}") from error
    timer = threading.Timer(timeout, cancelled.set)
    timer.daemon = True
    timer.start()
    try:
        data = _read(process, cancelled)
        status = _status(process, cancelled)
    except TimeoutError:
        raise SlurmError(f"{what}: no answer within {timeout:g} s") from None
    finally:
        timer.cancel()
        _end(process)
    if len(data) > MAX_OUTPUT:
        raise TooLongError(f"{what}: its answer is too long")
    text = data.decode(errors="replace")
    if status != 0:
        reason = line(text.strip(), 300)
        raise (UnknownJobError if _UNKNOWN_JOB in text else SlurmError)(f"{what}: {reason}")
    return text


def _read(process: subprocess.Popen[bytes], cancelled: threading.Event) -> bytearray:
    """Read the output to its end, or until it is too long.

    Raises:
        TimeoutError: the end did not come before the call was cancelled.
    """
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    descriptor, data = process.stdout.fileno(), bytearray()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(data) <= MAX_OUTPUT:
        if cancelled.is_set():
            raise TimeoutError
        # In steps, because a process that left the session may keep the pipe open.
        if poll.poll(_POLL_SECONDS * 1000):
            piece = os.read(descriptor, _CHUNK)
            if not piece:
                return data
            data += piece
    _kill(process)
    return data


def _status(process: subprocess.Popen[bytes], cancelled: threading.Event) -> int:
    """Wait for the end of a program that has closed its output, and return its status.

    Raises:
        TimeoutError: it did not end before the call was cancelled.
    """
    while not cancelled.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_SECONDS)
    raise TimeoutError


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what still runs, and close the pipe."""
    if process.poll() is None:
        _kill(process)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    process.stdout.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The program may be a script that runs another one.
    # It may have ended, or run as another user.
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
