"""When the file is written, and how it looks then."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from sinks.podlist import sink as under_test
from tests.sinks.podlist.support import (
    FOREIGN,
    OURS_OF_BEFORE,
    Bench,
    entries,
    held,
    listing,
    names,
    ours,
    short,
    state,
    until,
)
from tests.support.nodes import claim, uuid_of

WAYS = pytest.mark.parametrize("write", ["rename", "inplace"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "podlist.json"


# -- what is written


@WAYS
async def test_every_change_of_holders_is_written(path: Path, write: str) -> None:
    async with Bench(path, write=write).keeping() as bench:
        bench.holds()
        await until(lambda: path.exists() and path.read_text() == "[]\n")
        bench.holds(held("a", 0, 1), held("b", 2))
        await bench.reads(f"a={short(0, 1)}", f"b={short(2)}")
        bench.holds(held("b", 2))
        await bench.reads(f"b={short(2)}")
        bench.holds()
        await until(lambda: path.read_text() == "[]\n")
    assert names(path.parent) == [path.name]


async def test_numbers_where_they_are_asked_for(path: Path) -> None:
    async with Bench(path, ids="minor").keeping() as bench:
        bench.holds(held("a", 0, 1))
        await bench.reads("a=0,5")


@WAYS
async def test_entries_of_others_stay_as_they_are(path: Path, write: str) -> None:
    path.write_text(listing(OURS_OF_BEFORE, FOREIGN, OURS_OF_BEFORE, '{"a": "\\ud800"}'))
    async with Bench(path, write=write).keeping() as bench:
        bench.holds(held("a", 0))
        await until(lambda: uuid_of(0) in path.read_text())
        text = path.read_text()
        assert text.startswith(f'[\n{FOREIGN},\n{{"a": "\\ud800"}},\n{{"name":"a"')
        assert text.count("podgpu") == 1


async def test_a_word_of_a_pod_list_is_not_said_again(path: Path) -> None:
    async with Bench(path).keeping() as bench:
        bench.node.podlist(claim("theirs", uuid_of(1)))
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")


async def test_an_entry_of_ours_that_another_says_too_goes(path: Path) -> None:
    async with Bench(path).keeping() as bench:
        bench.holds(held("a", 0), held("b", 1))
        await bench.reads(f"a={short(0)}", f"b={short(1)}")
        theirs = '{"name": "a", "namespace": "ml", "container": "main", "gpu_list": [0]}'
        path.write_text(listing(theirs))
        bench.clock.seconds += 5
        bench.holds(held("a", 0), held("b", 1))
        await bench.reads(f"b={short(1)}")
        assert theirs in path.read_text()


# -- when


@pytest.mark.parametrize("text", ["null", " []", listing(FOREIGN)])
async def test_a_file_that_is_right_is_not_touched(path: Path, text: str) -> None:
    path.write_text(text)
    before = state(path)
    async with Bench(path).keeping() as bench:
        bench.holds()
        await bench.rests()
    assert state(path) == before


@WAYS
async def test_what_does_not_concern_the_file_does_not_touch_it(path: Path, write: str) -> None:
    async with Bench(path, write=write).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
        before = state(path)
        bench.node.podlist(claim("theirs", uuid_of(1)))
        bench.clock.seconds += 60
        bench.show()
        await bench.rests()
    assert state(path) == before


async def test_a_restart_writes_nothing_where_nothing_changed(path: Path) -> None:
    async with Bench(path).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
    before = state(path)
    async with Bench(path).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.rests()
    assert state(path) == before


async def test_what_others_destroy_comes_back(path: Path) -> None:
    async with Bench(path).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
        for spoil in (path.unlink, lambda: path.write_text(listing(FOREIGN))):
            spoil()
            await bench.rests()
            assert not ours(path)
            bench.clock.seconds += under_test._CHECK_SECONDS
            bench.show()
            await bench.reads(f"a={short(0)}")
    assert len(entries(path)) == 2


async def test_others_are_looked_after_without_a_snapshot(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "_CHECK_SECONDS", 0.05)
    bench = Bench(path)
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
        path.unlink()
        await bench.reads(f"a={short(0)}")


# -- at the start


async def test_an_earlier_run_s_entries_stand_until_the_sources_have_spoken(path: Path) -> None:
    path.write_text(listing(OURS_OF_BEFORE))
    bench = Bench(path)
    bench.waits_for("kubelet", "podresources")
    bench.waits_for("lists", "podlist")
    async with bench.keeping():
        bench.show()
        await bench.rests()
        assert path.read_text() == listing(OURS_OF_BEFORE)
        bench.loses("kubelet", "podresources")
        bench.show()
        await bench.rests()
        assert path.read_text() == listing(OURS_OF_BEFORE)
        # Nobody waits for a source that reads pod lists: the file may not be there before this.
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")


async def test_without_a_list_none_is_begun_before_that(path: Path) -> None:
    bench = Bench(path)
    bench.waits_for("kubelet", "podresources")
    async with bench.keeping():
        bench.show()
        await bench.rests()
        assert not path.exists()
    assert not path.exists()


async def test_a_source_that_says_nothing_is_not_waited_for_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.component.readiness._MAX_WAIT", 0.3)
    path.write_text(listing(OURS_OF_BEFORE, FOREIGN))
    bench = Bench(path)
    bench.waits_for("kubelet", "podresources")
    began = asyncio.get_running_loop().time()
    async with bench.keeping():
        bench.show()
        await bench.reads()
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert FOREIGN in path.read_text()


async def test_a_source_that_is_lost_later_withdraws_nothing(path: Path) -> None:
    async with Bench(path).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
        bench.loses("kubelet", "podresources")
        bench.show()
        await bench.rests()
        assert ours(path) == [f"a={short(0)}"]


async def test_a_sink_that_comes_later_begins_with_the_newest_snapshot(path: Path) -> None:
    bench = Bench(path)
    bench.holds(held("a", 0))
    assert bench.inbox.take_nowait() is not None
    async with bench.keeping():
        await bench.reads(f"a={short(0)}")


# -- at the end


async def test_the_last_snapshot_is_written_and_stays(path: Path) -> None:
    async with Bench(path).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
        bench.holds(held("b", 0))
    assert ours(path) == [f"b={short(0)}"]


# -- the file itself


@WAYS
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
async def test_everybody_may_read_it(path: Path, write: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        async with Bench(path, write=write).keeping() as bench:
            for pod in ("a", "b"):
                bench.holds(held(pod, 0))
                await bench.reads(f"{pod}={short(0)}")
                assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(before)


@WAYS
async def test_its_inode_reports_how_it_was_written(path: Path, write: str) -> None:
    path.write_text("[]")
    path.chmod(0o600)
    before = path.stat()
    async with Bench(path, write=write).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
    now = path.stat()
    assert (now.st_ino == before.st_ino) is (write == "inplace")
    assert (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid)
    assert stat.S_IMODE(now.st_mode) == 0o644


@WAYS
async def test_it_keeps_its_owner(path: Path, write: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root; as anybody else the call is refused, and the file is the writer's own."""
    path.write_text("[]")
    given: list[tuple[int, int]] = []
    real, owner = os.fchown, path.stat()

    def fchown(descriptor: int, uid: int, gid: int) -> None:
        given.append((uid, gid))
        if uid == 0:
            raise PermissionError
        real(descriptor, uid, gid)

    monkeypatch.setattr(os, "fchown", fchown)
    async with Bench(path, write=write).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
    assert given == ([(owner.st_uid, owner.st_gid)] if write == "rename" else [])


async def test_a_reader_who_keeps_it_open_sees_what_is_written_in_place(path: Path) -> None:
    path.write_text("[]")
    with path.open() as reader:
        async with Bench(path, write="inplace").keeping() as bench:
            for holders in ([held("a", 0), held("b", 1)], [held("a", 0)], []):
                bench.holds(*holders)
                await bench.reads(*(f"{c.subject.pod}={c.devices[0].text}" for c in holders))
                reader.seek(0)
                assert reader.read() == path.read_text()


async def test_what_a_killed_podgpu_left_is_removed_and_nothing_else(path: Path) -> None:
    left = [f".podlist.json.podgpu-{number:016x}" for number in range(3)]
    others = [".podlist.json.podgpu-mine", ".other.json.podgpu-0000000000000000", "podlist.json.1"]
    for name in (*left, *others):
        (path.parent / name).touch()
    async with Bench(path).keeping():
        pass
    assert names(path.parent) == sorted(others)
