"""A mount of only the file, as koordinator's exporter has it, in a separate mount namespace."""

import asyncio
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.sources.podlist.running import listing, replace
from tests.support.mounts import MAY_MOUNT, with_mounts

pytestmark = MAY_MOUNT

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


async def printed(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(5):
        line = (await process.stdout.readline()).decode().strip()
    if not line and process.stderr is not None:
        pytest.fail((await process.stderr.read()).decode())
    return line


def mounted(outside: Path, inside: Path) -> AbstractAsyncContextManager[Process]:
    return with_mounts('mount --bind "$2" "$3"', FOLLOW, outside, inside)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    outside, inside = tmp_path / "host" / "podlist.json", tmp_path / "pod" / "podlist.json"
    for place in (outside, inside):
        place.parent.mkdir()
        place.write_text(listing("a") if place == outside else "")
    return outside, inside


@pytest.mark.slow
async def test_a_mounted_file_shows_writes_in_place_and_its_replacement_is_reported(
    places: tuple[Path, Path],
) -> None:
    outside, inside = places
    async with mounted(outside, inside) as process:
        assert await printed(process) == "['a']"
        outside.write_text(listing("b"))
        assert await printed(process) == "['b']"
        replace(outside, listing("c"))
        assert await printed(process) == (
            f"{inside}: the file was replaced, but this mount of it still shows the old file; "
            "mount the folder instead of the file, or let the writer write in place"
        )


@pytest.mark.slow
async def test_a_mounted_folder_shows_writes_in_place_and_replacements(
    places: tuple[Path, Path],
) -> None:
    outside, inside = places
    folders = 'mount --bind "$(dirname "$2")" "$(dirname "$3")"'
    async with with_mounts(folders, FOLLOW, outside, inside) as process:
        assert await printed(process) == "['a']"
        outside.write_text(listing("b"))
        assert await printed(process) == "['b']"
        replace(outside, listing("c"))
        assert await printed(process) == "['c']"
