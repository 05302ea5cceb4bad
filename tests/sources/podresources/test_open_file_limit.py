"""A process at its limit of open files: gRPC's library would end the process."""

import asyncio
import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, json, os, resource, sys
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

async def main(when, available):
    if when == "later":
        await print_error()
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    open_files = []
    try:
        while True:
            open_files.append(os.dup(0))
    except OSError:
        pass
    for _ in range(available):
        os.close(open_files.pop())
    await print_error()
    while open_files:
        os.close(open_files.pop())
    await print_error()

# Each case is a process of its own, which has not loaded gRPC's library.
for when, available in json.loads(sys.argv[2]):
    print("case", when, available, flush=True)
    if os.fork() == 0:
        asyncio.run(main(when, available))
        sys.stdout.flush()
        os._exit(0)
    _, status = os.wait()
    assert status == 0, (when, available)
"""


@pytest.mark.slow
async def test_at_the_limit_of_open_files_the_kubelet_is_unreachable(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    cases = list(product(("at first", "later"), (0, 1, 4, 8)))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, str(path), json.dumps(cases)],
        capture_output=True,
        text=True,
        timeout=28,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, *outputs = done.stdout.split("case ")
    for (when, available), output in zip(cases, outputs, strict=True):
        name, *before, at_limit, after = output.splitlines()
        assert name == f"{when} {available}"
        assert len(before) == (when == "later"), name
        assert at_limit == (
            f"unreachable {path}: cannot connect: Too many open files; "
            "raise the limit of open files (ulimit -n)"
        ), name
        assert after.startswith(f"unreachable {path}: the kubelet is unreachable: "), name
