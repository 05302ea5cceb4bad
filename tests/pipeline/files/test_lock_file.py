"""Tests of lock files: take one, write the process id into it, find who holds it."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.files import lock_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def held(path: Path) -> Iterator[int]:
    descriptor = os.open(path, lock_file.FLAGS, 0o600)
    lock_file.take(descriptor)
    yield descriptor
    os.close(descriptor)


def test_a_held_lock_cannot_be_taken_until_it_is_released(path: Path, held: int) -> None:
    other = os.open(path, lock_file.FLAGS)
    try:
        with pytest.raises(BlockingIOError):
            lock_file.take(other)
        fcntl.flock(held, fcntl.LOCK_UN)
        lock_file.take(other)
    finally:
        os.close(other)


@pytest.mark.parametrize(
    ("written", "owner"),
    [
        (b"41\n", "process 41"),
        (b"", ""),
        (b"\xff", ""),
        (b"podgpu", ""),
        (b"1" * 30, f"process {'1' * 20}"),
    ],
)
def test_the_owner_of_a_lock_is_read_from_its_content(
    path: Path, held: int, written: bytes, owner: str
) -> None:
    os.pwrite(held, written, 0)
    assert lock_file.signed(held) == owner
    assert lock_file.locked_by(path) == (f"{owner} in its own container" if owner else "")


def test_a_new_process_id_replaces_the_previous_one(held: int) -> None:
    os.pwrite(held, b"123456789012\n", 0)
    lock_file.sign(held)
    assert lock_file.signed(held) == f"process {os.getpid()}"


def test_a_released_lock_has_no_owner(path: Path, held: int) -> None:
    fcntl.flock(held, fcntl.LOCK_UN)
    assert lock_file.locked_by(path) is None
    lock_file.take(held)
    assert lock_file.locked_by(path) == ""


def test_a_missing_lock_file_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock_file.locked_by(path)
