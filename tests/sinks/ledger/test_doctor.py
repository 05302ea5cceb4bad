"""The doctor's findings about the ledger's folder and file, each fault provoked."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from config.value_types import ByteSize
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from pipeline.ledger.schema import HOUR_NS
from sinks.ledger import doctor
from sinks.ledger.doctor import examine
from sinks.ledger.options import Options
from sinks.ledger.writer_lock import Lock, lock_of
from tests.pipeline.ledger.test_file_open import filled, invalid_ledger
from tests.podgpu.doctor.support import context, is_bad, of

HOLDER = """
import sys, time
from pathlib import Path
from sinks.ledger.writer_lock import Lock
Lock(Path(sys.argv[1])).take()
print("held", flush=True)
time.sleep(60)
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "file_system", lambda *_: "ext4")


async def finding_of(folder: Path, path: Path, size: str = "1MiB") -> Finding:
    options = Options(path=path, max_size=ByteSize.parse(size))
    return of(await findings_of(partial(examine, options, context(folder / "ctx"))), "ledger.file")


def write_ledger(path: Path) -> None:
    filled(path, 30).close()


async def test_a_valid_ledger_is_ok_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    assert (await finding_of(tmp_path / "a", path)).verdict is Verdict.OK
    assert not path.exists()
    await asyncio.to_thread(write_ledger, path)
    before = sorted((each.name, each.stat().st_mtime_ns) for each in tmp_path.glob("usage.db*"))
    assert (await finding_of(tmp_path / "b", path)).verdict is Verdict.OK
    after = sorted((each.name, each.stat().st_mtime_ns) for each in tmp_path.glob("usage.db*"))
    assert after == before


async def test_a_missing_folder_is_a_failure(tmp_path: Path) -> None:
    finding = await finding_of(tmp_path, tmp_path / "none/usage.db")
    is_bad(finding, "failure", f"folder {tmp_path}/none does not exist", "mkdir -p")


@pytest.mark.parametrize(
    ("how", "verdict", "observation", "fix"),
    [
        ("text", "warning", "not a database", "renames a damaged file"),
        ("page", "warning", "", "renames a damaged file"),
        ("column", "warning", "has no column", "renames a damaged file"),
        ("version", "failure", "versions up to", "use a newer podgpu"),
        ("application", "failure", "another program's database", "give another path"),
    ],
)
async def test_a_file_that_is_no_valid_ledger_has_a_finding_with_a_fix(
    tmp_path: Path, how: str, verdict: str, observation: str, fix: str
) -> None:
    path = await asyncio.to_thread(invalid_ledger, tmp_path, how)
    is_bad(await finding_of(tmp_path / "ctx", path), verdict, observation, fix)


async def test_a_ledger_that_another_podgpu_uses_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    await asyncio.to_thread(write_ledger, path)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(path), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"held\n"
        finding = await finding_of(tmp_path / "ctx", path)
    finally:
        process.kill()
        await process.wait()
    is_bad(finding, "failure", f"process {process.pid}", "its own ledger")


async def test_the_check_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    lock = Lock(path)
    await asyncio.to_thread(lock.take)
    lock.release()
    assert lock_of(path).exists()
    assert (await finding_of(tmp_path / "ctx", path)).verdict is Verdict.OK
    await asyncio.to_thread(lock.take)
    lock.release()


async def test_a_file_system_in_memory_or_with_too_little_space_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "usage.db"
    is_bad(
        await finding_of(tmp_path / "a", path, "900TiB"), "warning", "MiB are free", "free space"
    )
    monkeypatch.setattr(doctor, "file_system", lambda *_: "tmpfs")
    is_bad(await finding_of(tmp_path / "b", path), "warning", "is on tmpfs", "the node's disk")


@pytest.mark.parametrize(
    ("archive", "verdict", "text"),
    [
        (None, None, ""),
        ((-1, None), "warning", "should be written to its archive, and never was: 2 rows wait"),
        ((-1, 7), "warning", "has not been for 7 hours"),
        ((-1, 5), "ok", "2 rows wait for the archive"),
        ((1, 7), "ok", "0 rows wait"),
    ],
)
async def test_an_archive_that_is_not_written_is_a_warning(
    tmp_path: Path,
    archive: tuple[int, int | None] | None,
    verdict: str | None,
    text: str,
) -> None:
    """An archive is the side of the ledger's last hour on which it ends, and hours since."""
    path = tmp_path / "usage.db"
    await asyncio.to_thread(write_ledger, path)
    ctx = context(tmp_path / "ctx")
    now_ns = ctx.clock.now().wall_ns
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("hours", "device_hours"):
            query = f"UPDATE {table} SET hour = ?"  # noqa: S608
            connection.execute(query, (now_ns // HOUR_NS - 10,))
        if archive is not None:
            side, hours = archive
            written = None if hours is None else now_ns - hours * HOUR_NS
            connection.execute(
                "INSERT INTO archive VALUES (0, ?, 1, '', ?)",
                (now_ns // HOUR_NS - 10 + side, written),
            )
    options = Options(path=path, max_size=ByteSize.parse("1MiB"))
    found = await findings_of(partial(examine, options, ctx))
    of_archive = [each for each in found if each.check == "ledger.archive"]
    if verdict is None:
        assert of_archive == []
        return
    (finding,) = of_archive
    assert finding.verdict.value == verdict
    assert text in finding.observed
