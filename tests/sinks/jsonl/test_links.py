"""A symbolic link that another user may have created is not followed."""

import os
from pathlib import Path

import pytest

from pipeline.base.errors import PermanentError
from tests.podgpu.doctor.support import is_bad
from tests.sinks.jsonl.support import Bench, options, watts
from tests.sinks.jsonl.test_doctor import check_file
from tests.sinks.jsonl.test_rotating_file import write_lines

NO_ONE = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.mark.parametrize(
    ("mode", "owner", "link_owner", "refused"),
    [
        (0o777, 0, 0, True),
        (0o1777, 0, NO_ONE, True),
        (0o755, NO_ONE, 0, True),
        (0o755, 0, NO_ONE, True),
        (0o755, 0, 0, False),
        (0o775, 0, 0, False),
    ],
)
@pytest.mark.parametrize("kind", ["file", "folder"])
@as_root
async def test_r10_a_link_that_another_user_may_have_created_is_rejected(
    tmp_path: Path, mode: int, owner: int, link_owner: int, kind: str, *, refused: bool
) -> None:
    """R10: otherwise a user with access to the folder could choose which file podgpu appends to."""
    shared, target = tmp_path / "shared", tmp_path / "other"
    shared.mkdir()
    target.mkdir()
    (target / "gpu.jsonl").write_text("theirs\n")
    link = shared / ("gpu.jsonl" if kind == "file" else "log")
    link.symlink_to(target / "gpu.jsonl" if kind == "file" else target)
    path = link if kind == "file" else link / "gpu.jsonl"
    shared.chmod(mode)
    os.chown(shared, owner, owner)
    os.lchown(link, link_owner, link_owner)
    if not refused:
        await write_lines(path)
        assert (target / "gpu.jsonl").read_text().startswith("theirs\n{")
        return
    with pytest.raises(
        PermanentError, match="is a symbolic link that another user may have created"
    ):
        await write_lines(path)
    assert (target / "gpu.jsonl").read_text() == "theirs\n"
    finding = await check_file(tmp_path / "ctx", options(path))
    is_bad(finding, "failure", f"{link} is a symbolic link", "set the path that it points to")


async def test_r10_a_link_that_replaces_the_file_is_not_followed(tmp_path: Path) -> None:
    """R10: lines are dropped and counted until the link is removed."""
    path, other = tmp_path / "gpu.jsonl", tmp_path / "other"
    other.write_text("theirs\n")
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(1)
        path.unlink()
        path.symlink_to(other)
        await bench.write(2)
        path.unlink()
        await bench.write(1)
    assert other.read_text() == "theirs\n"
    assert watts(path) == [4]
    assert bench.dropped == {"write_error": 2}
