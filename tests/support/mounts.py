"""Run programs in a separate mount namespace."""

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Without root, a process that is root in a user namespace can mount too.
UNSHARE = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])

MAY_MOUNT = pytest.mark.skipif(
    subprocess.run([*UNSHARE, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0,
    reason="this kernel allows only root to mount",
)


@asynccontextmanager
async def with_mounts(mounts: str, program: str, *args: Path) -> AsyncIterator[Process]:
    """Run a program in a mount namespace with these mounts, which no other process sees."""
    command = f'{mounts} && exec "$0" -c "$1" "$3"'
    process = await asyncio.create_subprocess_exec(
        *UNSHARE, "sh", "-c", command, sys.executable, program, *args,
        cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
