"""Which files of a folder are read, and which jobs they list: the rules of dcgm-exporter."""

import os
from pathlib import Path

import pytest

from pipeline.files.bounded_read import AbsentError, UnreadableError
from pipeline.model import DeviceJobs
from sources.jobfiles.job_folder import MAX_JOBS, read_folder

JOBS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "one job": (b"4711\n", ("4711",)),
    "no end of the line": (b"4711", ("4711",)),
    "several jobs in the order of the file": (b"12\n9\n12_3\n", ("12", "9", "12_3")),
    "a job that is listed twice": (b"job2\njob1\njob2\njob3\njob1\n", ("job2", "job1", "job3")),
    "an empty line is a job without id": (b"\n", ("",)),
    "an empty line after a job": (b"4711\n\n", ("4711", "")),
    "blanks are a part of the id": (b" 4711 \n", (" 4711 ",)),
    "line ends of Windows": (b"4711\r\n12\r\n", ("4711", "12")),
    "bytes that are no UTF-8": (b"\xff1\n", ("\ufffd1",)),
    "as many jobs as allowed": (
        b"\n".join(b"%d" % i for i in range(MAX_JOBS)),
        tuple(map(str, range(MAX_JOBS))),
    ),
}


@pytest.mark.parametrize(("content", "jobs"), JOBS.values(), ids=JOBS)
def test_each_line_of_a_file_is_a_job(
    tmp_path: Path, content: bytes, jobs: tuple[str, ...]
) -> None:
    (tmp_path / "0").write_bytes(content)
    assert read_folder(tmp_path).devices == (DeviceJobs(0, None, jobs),)


def test_an_empty_file_means_an_idle_gpu(tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    assert read_folder(tmp_path).devices == ()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("0", (0, None)),
        ("42", (42, None)),
        ("0.0", (0, 0)),
        ("3.10", (3, 10)),
    ],
)
def test_a_file_is_named_after_the_gpu_and_the_gpu_instance(
    tmp_path: Path, name: str, place: tuple[int, int | None]
) -> None:
    (tmp_path / name).write_text("1\n")
    assert read_folder(tmp_path).devices == (DeviceJobs(*place, ("1",)),)


@pytest.mark.parametrize(
    "name",
    [
        *("foo", "bar.txt", ".gitkeep", "1e5", "NaN", "+3", "-2", ".5", "5.", "1.2.3"),
        *("00", "0.01", "\u0663", "9" * 30, "0.tmp", "0\n"),
    ],
)
def test_files_with_other_names_are_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("1\n")
    assert read_folder(tmp_path).devices == ()


def test_folders_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    found = read_folder(tmp_path)
    assert (found.devices, found.problems) == ((), ())


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("7\n")
    (tmp_path / "1").symlink_to("list")
    assert read_folder(tmp_path).devices == (DeviceJobs(1, None, ("7",)),)


def test_devices_are_in_the_order_of_their_index(tmp_path: Path) -> None:
    for name in ("10", "2", "2.3", "2.0"):
        (tmp_path / name).write_text("1\n")
    places = [(one.gpu, one.gpu_instance) for one in read_folder(tmp_path).devices]
    assert places == [(2, None), (2, 0), (2, 3), (10, None)]


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("1\n")
    os.mkfifo(tmp_path / "1")
    (tmp_path / "2").write_bytes(b"x" * (70 << 10))
    (tmp_path / "3").write_text("".join(f"{job}\n" for job in range(MAX_JOBS + 1)))
    (tmp_path / "4").symlink_to(".")
    found = read_folder(tmp_path)
    assert found.devices == (DeviceJobs(0, None, ("1",)),)
    assert list(found.problems) == [
        f"{tmp_path}/1: is not a regular file",
        f"{tmp_path}/2: is larger than the maximum of 64KiB",
        f"{tmp_path}/3: lists more than 1000 jobs",
        f"{tmp_path}/4: is not a regular file",
    ]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="none: no such folder"):
        read_folder(tmp_path / "none")


def test_a_file_instead_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnreadableError, match="file: is not a folder"):
        read_folder(tmp_path / "file")
