"""A mount of only the file, as koordinator's exporter has it, in a separate mount namespace."""

import asyncio
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from tests.sinks.podlist.support import OTHER_ENTRY, Bench, held, listing, podgpu_entries, uuids
from tests.support.mounts import MAY_MOUNT, with_mounts

pytestmark = MAY_MOUNT

READ = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    print(path.read_text().replace("\\n", " "), flush=True)
"""
WRITE = """
import asyncio, logging, pathlib, sys
from tests.sinks.podlist.support import Bench, held

async def main():
    path = pathlib.Path(sys.argv[1])
    async with Bench(path).running() as bench:
        for pod in "ab":
            bench.set_holders(held(pod, 0))
            await bench.wait_for_entries(f"{pod}={held(pod, 0).devices[0].text}")
    print(*(file.name for file in path.parent.iterdir()), flush=True)

logging.basicConfig(format="%(message)s")
asyncio.run(main())
"""


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    outside, inside = tmp_path / "host" / "podlist.json", tmp_path / "pod" / "podlist.json"
    for place in (outside, inside):
        place.parent.mkdir()
        place.write_text(listing(OTHER_ENTRY) if place == outside else "")
    return outside, inside


async def read(process: Process) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    async with asyncio.timeout(5):
        return (await process.stdout.readline()).decode()


@pytest.mark.parametrize("write", ["inplace", "rename"])
async def test_a_reader_with_only_the_file_mounted_sees_only_writes_in_place(
    places: tuple[Path, Path], write: str
) -> None:
    outside, inside = places
    async with with_mounts('mount --bind "$2" "$3"', READ, outside, inside) as process:
        assert "theirs" in await read(process)
        async with Bench(outside, write=write).running() as bench:
            for holders in ([held("a", 0), held("b", 1)], [held("a", 0)]):
                bench.set_holders(*holders)
                await bench.wait_for_entries(
                    *(f"{c.subject.pod}={c.devices[0].text}" for c in holders)
                )
                content = await read(process)
                if write == "inplace":
                    assert content == outside.read_text().replace("\n", " ") + "\n"
                else:
                    assert "podgpu" not in content  # it keeps the file that was replaced


MOUNTS = {
    "a file in a folder that can be written": 'mount --bind "$2" "$3"',
    "a file on a read-only root": 'mount --bind "$2" "$3" && d=$(dirname "$3") && '
    'mount --bind "$d" "$d" && mount --bind "$2" "$3" && mount -o remount,ro,bind "$d"',
}


@pytest.mark.slow
@pytest.mark.parametrize("mounts", MOUNTS.values(), ids=MOUNTS)
async def test_a_file_that_cannot_be_replaced_is_written_in_place(
    places: tuple[Path, Path], mounts: str
) -> None:
    outside, inside = places
    before = outside.stat()
    async with with_mounts(mounts, WRITE, outside, inside) as process:
        async with asyncio.timeout(10):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    assert output.decode() == "podlist.json\n"
    assert errors.decode() == (
        f"{inside}: is a mount point and cannot be replaced; podgpu writes into it instead\n"
    )
    assert podgpu_entries(outside) == [f"b={uuids(0)}"]
    assert OTHER_ENTRY in outside.read_text()
    assert outside.stat().st_ino == before.st_ino
    assert inside.read_text() == ""


@pytest.mark.slow
async def test_a_mount_of_a_file_that_was_replaced_outside_is_an_error(
    places: tuple[Path, Path],
) -> None:
    """No reader outside of the mount would see what podgpu writes there."""
    outside, inside = places
    program = WRITE.replace("asyncio.run", 'input("?")\nasyncio.run')
    async with with_mounts('mount --bind "$2" "$3"', program, outside, inside) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdout.readexactly(1)
        outside.with_suffix(".new").write_text("[]")
        outside.with_suffix(".new").replace(outside)
        process.stdin.write(b"\n")
        async with asyncio.timeout(10):
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"{inside}: the file was replaced, but this mount of it" in errors.decode()
    assert outside.read_text() == "[]"
    assert inside.read_text() == ""
