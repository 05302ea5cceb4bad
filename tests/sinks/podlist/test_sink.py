"""When the sink writes the file, and the file's properties."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from sinks.podlist import sink as under_test
from tests.sinks.podlist.support import (
    OLD_OWN_ENTRY,
    OTHER_ENTRY,
    Bench,
    entries,
    file_state,
    held,
    listing,
    names,
    podgpu_entries,
    until,
    uuids,
)
from tests.support.nodes import claim, uuid_of

WAYS = pytest.mark.parametrize("write", ["rename", "inplace"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "podlist.json"


# -- what is written


@WAYS
async def test_every_change_of_holders_is_written(path: Path, write: str) -> None:
    async with Bench(path, write=write).running() as bench:
        bench.set_holders()
        await until(lambda: path.exists() and path.read_text() == "[]\n")
        bench.set_holders(held("a", 0, 1), held("b", 2))
        await bench.wait_for_entries(f"a={uuids(0, 1)}", f"b={uuids(2)}")
        bench.set_holders(held("b", 2))
        await bench.wait_for_entries(f"b={uuids(2)}")
        bench.set_holders()
        await until(lambda: path.read_text() == "[]\n")
    assert names(path.parent) == [path.name]


async def test_gpus_are_listed_by_minor_number_if_configured(path: Path) -> None:
    async with Bench(path, ids="minor").running() as bench:
        bench.set_holders(held("a", 0, 1))
        await bench.wait_for_entries("a=0,5")


@WAYS
async def test_entries_of_others_stay_unchanged(path: Path, write: str) -> None:
    path.write_text(listing(OLD_OWN_ENTRY, OTHER_ENTRY, OLD_OWN_ENTRY, '{"a": "\\ud800"}'))
    async with Bench(path, write=write).running() as bench:
        bench.set_holders(held("a", 0))
        await until(lambda: uuid_of(0) in path.read_text())
        text = path.read_text()
        assert text.startswith(f'[\n{OTHER_ENTRY},\n{{"a": "\\ud800"}},\n{{"name":"a"')
        assert text.count("podgpu") == 1


async def test_a_claim_from_a_pod_list_is_not_written(path: Path) -> None:
    async with Bench(path).running() as bench:
        bench.node.podlist(claim("theirs", uuid_of(1)))
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")


async def test_an_entry_of_podgpu_is_removed_once_another_writer_lists_the_same(path: Path) -> None:
    async with Bench(path).running() as bench:
        bench.set_holders(held("a", 0), held("b", 1))
        await bench.wait_for_entries(f"a={uuids(0)}", f"b={uuids(1)}")
        other_entry = '{"name": "a", "namespace": "ml", "container": "main", "gpu_list": [0]}'
        path.write_text(listing(other_entry))
        bench.clock.seconds += 5
        bench.set_holders(held("a", 0), held("b", 1))
        await bench.wait_for_entries(f"b={uuids(1)}")
        assert other_entry in path.read_text()


# -- when


@pytest.mark.parametrize("text", ["null", " []", listing(OTHER_ENTRY)])
async def test_a_file_that_is_correct_already_is_not_written(path: Path, text: str) -> None:
    path.write_text(text)
    before = file_state(path)
    async with Bench(path).running() as bench:
        bench.set_holders()
        await bench.settle()
    assert file_state(path) == before


@WAYS
async def test_a_snapshot_without_changes_for_the_file_causes_no_write(
    path: Path, write: str
) -> None:
    async with Bench(path, write=write).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
        before = file_state(path)
        bench.node.podlist(claim("theirs", uuid_of(1)))
        bench.clock.seconds += 60
        bench.show()
        await bench.settle()
    assert file_state(path) == before


async def test_a_restart_without_changes_writes_nothing(path: Path) -> None:
    async with Bench(path).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
    before = file_state(path)
    async with Bench(path).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.settle()
    assert file_state(path) == before


@pytest.mark.slow
async def test_entries_that_others_remove_are_restored(path: Path) -> None:
    async with Bench(path).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
        for damage in (path.unlink, lambda: path.write_text(listing(OTHER_ENTRY))):
            damage()
            await bench.settle()
            assert not podgpu_entries(path)
            bench.clock.seconds += under_test._CHECK_SECONDS
            bench.show()
            await bench.wait_for_entries(f"a={uuids(0)}")
    assert len(entries(path)) == 2


async def test_the_file_is_checked_without_a_snapshot(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "_CHECK_SECONDS", 0.05)
    bench = Bench(path)
    async with bench.running():
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
        path.unlink()
        await bench.wait_for_entries(f"a={uuids(0)}")


# -- at the start


@pytest.mark.slow
async def test_entries_of_an_earlier_run_stay_until_the_sources_have_reported(path: Path) -> None:
    path.write_text(listing(OLD_OWN_ENTRY))
    bench = Bench(path)
    bench.add_source("kubelet", "podresources")
    bench.add_source("lists", "podlist")
    async with bench.running():
        bench.show()
        await bench.settle()
        assert path.read_text() == listing(OLD_OWN_ENTRY)
        bench.lose_source("kubelet", "podresources")
        bench.show()
        await bench.settle()
        assert path.read_text() == listing(OLD_OWN_ENTRY)
        # The sink does not wait for a source that reads pod lists: it may have no file until now.
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")


async def test_no_file_is_created_before_the_sources_have_reported(path: Path) -> None:
    bench = Bench(path)
    bench.add_source("kubelet", "podresources")
    async with bench.running():
        bench.show()
        await bench.settle()
        assert not path.exists()
    assert not path.exists()


@pytest.mark.slow
async def test_the_wait_for_a_silent_source_is_limited(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.component.readiness._MAX_WAIT", 0.3)
    path.write_text(listing(OLD_OWN_ENTRY, OTHER_ENTRY))
    bench = Bench(path)
    bench.add_source("kubelet", "podresources")
    start = asyncio.get_running_loop().time()
    async with bench.running():
        bench.show()
        await bench.wait_for_entries()
    assert asyncio.get_running_loop().time() - start >= 0.3
    assert OTHER_ENTRY in path.read_text()


async def test_a_source_that_is_lost_later_removes_no_entry(path: Path) -> None:
    async with Bench(path).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
        bench.lose_source("kubelet", "podresources")
        bench.show()
        await bench.settle()
        assert podgpu_entries(path) == [f"a={uuids(0)}"]


async def test_a_sink_that_starts_later_uses_the_newest_snapshot(path: Path) -> None:
    bench = Bench(path)
    bench.set_holders(held("a", 0))
    assert bench.inbox.take_nowait() is not None
    async with bench.running():
        await bench.wait_for_entries(f"a={uuids(0)}")


# -- at the end


async def test_the_last_snapshot_is_written_at_the_stop(path: Path) -> None:
    async with Bench(path).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
        bench.set_holders(held("b", 0))
    assert podgpu_entries(path) == [f"b={uuids(0)}"]


# -- the file itself


@WAYS
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
async def test_all_users_may_read_the_file(path: Path, write: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        async with Bench(path, write=write).running() as bench:
            for pod in ("a", "b"):
                bench.set_holders(held(pod, 0))
                await bench.wait_for_entries(f"{pod}={uuids(0)}")
                assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(before)


@WAYS
async def test_only_a_write_in_place_keeps_the_inode(path: Path, write: str) -> None:
    path.write_text("[]")
    path.chmod(0o600)
    before = path.stat()
    async with Bench(path, write=write).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
    now = path.stat()
    assert (now.st_ino == before.st_ino) is (write == "inplace")
    assert (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid)
    assert stat.S_IMODE(now.st_mode) == 0o644


@WAYS
async def test_a_replaced_file_keeps_its_owner(
    path: Path, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For root. For other users the call is refused, and the file belongs to the writer."""
    path.write_text("[]")
    calls: list[tuple[int, int]] = []
    real, owner = os.fchown, path.stat()

    def fchown(descriptor: int, uid: int, gid: int) -> None:
        calls.append((uid, gid))
        if uid == 0:
            raise PermissionError
        real(descriptor, uid, gid)

    monkeypatch.setattr(os, "fchown", fchown)
    async with Bench(path, write=write).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
    assert calls == ([(owner.st_uid, owner.st_gid)] if write == "rename" else [])


async def test_a_reader_that_keeps_the_file_open_sees_writes_in_place(path: Path) -> None:
    path.write_text("[]")
    with path.open() as reader:
        async with Bench(path, write="inplace").running() as bench:
            for holders in ([held("a", 0), held("b", 1)], [held("a", 0)], []):
                bench.set_holders(*holders)
                await bench.wait_for_entries(
                    *(f"{c.subject.pod}={c.devices[0].text}" for c in holders)
                )
                reader.seek(0)
                assert reader.read() == path.read_text()


async def test_only_temporary_files_of_a_killed_podgpu_are_removed(path: Path) -> None:
    left = [f".podlist.json.podgpu-{number:016x}" for number in range(3)]
    others = [".podlist.json.podgpu-mine", ".other.json.podgpu-0000000000000000", "podlist.json.1"]
    for name in (*left, *others):
        (path.parent / name).touch()
    async with Bench(path).running():
        pass
    assert names(path.parent) == sorted(others)
