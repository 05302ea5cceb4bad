"""A process at its limit of open files: gRPC's library would end the process."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, resource, sys
from pathlib import Path
from config.value_types import Duration
from sources.podresources.kubelet_connection import Kubelet, KubeletError

async def request():
    kubelet = Kubelet(Path(sys.argv[1]), Duration.parse("1s"), lambda *_: None)
    try:
        await kubelet.list()
    finally:
        await kubelet.close()

async def print_error():
    try:
        await request()
    except KubeletError as error:
        print(error.result, error)

async def main():
    if sys.argv[2] == "later":
        await print_error()
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    open_files = []
    try:
        while True:
            open_files.append(os.dup(0))
    except OSError:
        pass
    for _ in range(int(sys.argv[3])):
        os.close(open_files.pop())
    await print_error()
    while open_files:
        os.close(open_files.pop())
    await print_error()

asyncio.run(main())
"""


@pytest.mark.parametrize("available", [0, 1, 4, 8])
@pytest.mark.parametrize("when", ["at first", "later"])
async def test_at_the_limit_of_open_files_the_kubelet_is_unreachable(
    when: str, available: int, tmp_path: Path
) -> None:
    path = tmp_path / "kubelet.sock"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, str(path), when, str(available)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *before, at_limit, after = done.stdout.splitlines()
    assert len(before) == (when == "later")
    assert at_limit == (
        f"unreachable {path}: cannot connect: Too many open files; "
        "raise the limit of open files (ulimit -n)"
    )
    assert after.startswith(f"unreachable {path}: the kubelet is unreachable: ")
