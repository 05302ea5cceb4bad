"""The reader of files with claims, tested with the reader function of `podlist`."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from config.value_types import ByteSize
from pipeline.component.claim_file_reader import ClaimFileReader, FileClaims, FileFault
from pipeline.files.bounded_read import Content, Stamp, read_file
from pipeline.files.file_watch import Watcher
from sources.podlist.pod_list_file import read_pod_list
from tests.sources.podlist.running import listing, replace


def reader_of(path: Path) -> ClaimFileReader:
    read = partial(read_pod_list, path=path, integers="minor")
    return ClaimFileReader(path, ByteSize(10_000), read, Watcher(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "podlist.json"
    path.write_text(listing("a"))
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each check whether it read the file."""
    checks: list[bool] = []

    def reading(path: Path, max_size: ByteSize, known: Stamp | None) -> Content:
        content = read_file(path, max_size, known)
        checks.append(content.data is not None)
        return content

    monkeypatch.setattr("pipeline.component.claim_file_reader.read_file", reading)
    return checks


def test_an_unchanged_file_is_read_twice_because_file_times_are_coarse(
    path: Path, read: list[bool]
) -> None:
    reader = reader_of(path)
    outcomes = [reader.read(changed) for changed in (True, False, False, False)]
    assert read == [True, True, False, False]
    assert all(outcome is outcomes[0] for outcome in outcomes)
    replace(path, listing("b"))
    assert reader.read(changed=False) != outcomes[0]
    assert reader.read(changed=True) is reader.read(changed=False)
    assert read[4:] == [True, True, False]


def test_a_reported_change_is_read_even_if_the_file_time_is_unchanged(
    path: Path, read: list[bool]
) -> None:
    reader = reader_of(path)
    for _ in range(4):
        reader.read(changed=True)
    assert read == [True] * 4


def test_an_unchanged_invalid_file_is_not_parsed_repeatedly(path: Path, read: list[bool]) -> None:
    path.write_text("{}")
    reader = reader_of(path)
    outcomes = [reader.read(changed=False) for _ in range(3)]
    assert outcomes == [FileFault(f"{path}:1:1: expected a list, found an object")] * 3
    assert read == [True, True, False]


def test_equal_claims_after_a_fault_are_the_same_object(path: Path) -> None:
    reader = reader_of(path)
    before = reader.read(changed=True)
    path.unlink()
    assert isinstance(reader.read(changed=True), FileFault)
    path.write_text(listing("a"))
    assert reader.read(changed=True) is before


def test_claims_stay_the_same_object_if_only_the_problems_change(path: Path) -> None:
    reader = reader_of(path)
    before = reader.read(changed=True)
    path.write_text(listing("a")[:-1] + ", 1]")
    after = reader.read(changed=True)
    assert isinstance(before, FileClaims)
    assert isinstance(after, FileClaims)
    assert after.claims is before.claims
    assert after.problems != before.problems


def test_unchanged_containers_are_the_same_objects(path: Path) -> None:
    reader = reader_of(path)
    path.write_text(listing("a", "b"))
    before = reader.read(changed=True)
    path.write_text(listing("c", "b", "a"))
    after = reader.read(changed=True)
    assert isinstance(before, FileClaims)
    assert isinstance(after, FileClaims)
    a, b = (claim.subject for claim in before.claims)
    assert [claim.subject.pod for claim in after.claims] == ["c", "b", "a"]
    assert after.claims[1].subject is b
    assert after.claims[2].subject is a
    assert after.claims[2].origin.detail.endswith("[2]")


@pytest.mark.slow
async def test_the_number_of_inotify_watches_does_not_grow(path: Path) -> None:
    def watches() -> int:
        count = 0
        for descriptor in Path("/proc/self/fdinfo").iterdir():
            try:
                text = descriptor.read_text()
            except OSError:
                continue
            count += text.count("inotify wd:")
        return count

    before = watches()
    link = path.with_name("link")
    with Watcher(link) as watcher:
        watcher.open()
        counts = []
        for number in range(30):
            folder = path.with_name(f"folder{number}")
            folder.mkdir()
            replace(folder / "podlist.json", listing("a"))
            link.with_name("fresh").symlink_to(folder / "podlist.json")
            link.with_name("fresh").replace(link)
            await asyncio.to_thread(watcher.arm)
            counts.append(watches() - before)
    assert len(set(counts)) == 1
    assert watches() == before
