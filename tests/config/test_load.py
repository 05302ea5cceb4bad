"""Read the configuration file from disk."""

import os
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import load
from tests.config.samples import SINKS, Samples


def problem(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, Samples(), env={})
    assert caught.value.origin == str(path)
    return str(caught.value).removeprefix(str(path))


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "podgpu.yaml"
    path.write_text(SINKS + "sources: {a: {kind: nvml}}\n")
    assert list(load(path, Samples(), env={}).sources) == ["a"]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(SINKS + "sources: {a: {kind: nvml}}\n")
    (tmp_path / "link").symlink_to("real")
    assert load(tmp_path / "link", Samples(), env={}).sources


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    expected = ": there is no such file; check the path, and that it is mounted"
    assert problem(tmp_path / "none.yaml") == expected


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert problem(tmp_path) == ": not a regular file; give the path of a YAML file"


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert problem(tmp_path / "pipe") == ": not a regular file; give the path of a YAML file"


def test_a_file_without_read_permission_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret.yaml"
    path.touch()

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root can read a file whatever its mode is
    assert problem(path) == ": no permission to read the file; allow podgpu's user to read the file"


def test_a_path_that_is_too_long_is_reported(tmp_path: Path) -> None:
    assert problem(tmp_path / ("x" * 300)) == ": the file cannot be read: File name too long"


def test_a_path_with_a_nul_character_is_reported(tmp_path: Path) -> None:
    assert ": the file cannot be read: embedded null" in problem(tmp_path / "a\0b")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ": the file is empty; configure a source and a sink"),
        (b"a: \xff\xfe", ":1:4: not UTF-8; save the file as UTF-8"),
        (b"\n\0", ":2:1: a NUL byte: this is not a text file; remove it"),
        (b"#" * 2_000_000, ": larger than the limit of 1 MiB; check that this is the right file"),
    ],
)
def test_content_that_is_not_a_text_file_is_refused(
    tmp_path: Path, data: bytes, expected: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    assert problem(path) == expected
