"""The file mounted alone, as koordinator's exporter has it; in a mount namespace of its own."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sources.podlist.running import listing, replace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")

ROOT = Path(__file__).parents[3]
MOUNT = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2"'
FOLLOW = """
import asyncio, pathlib, sys
from tests.sources.podlist.running import Following
from sources.podlist.options import Options
from sources.podlist.source import PodListSource

class Printing(Following):
    async def emit(self, event):
        await super().emit(event)
        print(getattr(event, "reason", self.pods()), flush=True)

asyncio.run(PodListSource(Options(path=pathlib.Path(sys.argv[1]))).run(Printing()))
"""


async def said(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(5):
        line = (await process.stdout.readline()).decode().strip()
    if not line and process.stderr is not None:
        pytest.fail((await process.stderr.read()).decode())
    return line


@asynccontextmanager
async def mounted(outside: Path, inside: Path) -> AsyncIterator[Process]:
    command = ["sh", "-c", MOUNT, "sh", str(outside), str(inside), sys.executable, FOLLOW]
    process = await asyncio.create_subprocess_exec(
        "unshare", "--mount", *command, cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    outside, inside = tmp_path / "host" / "podlist.json", tmp_path / "pod" / "podlist.json"
    for place in (outside, inside):
        place.parent.mkdir()
        place.write_text(listing("a") if place == outside else "")
    return outside, inside


async def test_writing_in_place_is_seen_and_replacing_is_found_out(
    places: tuple[Path, Path],
) -> None:
    outside, inside = places
    async with mounted(outside, inside) as process:
        assert await said(process) == "['a']"
        outside.write_text(listing("b"))
        assert await said(process) == "['b']"
        replace(outside, listing("c"))
        assert await said(process) == (
            f"{inside}: was replaced outside, and this mount of the file still shows the old one; "
            "mount the folder instead of the file, or let the writer write in place"
        )


async def test_the_folder_mounted_sees_both(places: tuple[Path, Path]) -> None:
    outside, inside = places
    command = MOUNT.replace('-c "$4" "$2"', '-c "$4" "$2/podlist.json"')
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", command, "sh"),
        *(str(outside.parent), str(inside.parent), sys.executable, FOLLOW),
        cwd=ROOT,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        assert await said(process) == "['a']"
        outside.write_text(listing("b"))
        assert await said(process) == "['b']"
        replace(outside, listing("c"))
        assert await said(process) == "['c']"
    finally:
        process.kill()
        await process.communicate()
