"""Configuration errors of the sink `jsonl`."""

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sinks.jsonl.options import Options


@pytest.mark.parametrize(
    "path",
    [
        "/dev/stdout",
        "//dev/./stdout",
        "/var/../dev/stdout",
        "/dev/fd/1",
        "/proc/self/fd/1",
        "/proc/thread-self/fd/1",
        "/proc/4242/fd/1",
    ],
)
def test_standard_output_can_only_be_named_by_a_dash(path: str) -> None:
    [(key, text)] = Options(path=path).problems()
    assert (key, text) == ("path", f'{path} is standard output: use "-"')


@pytest.mark.parametrize(
    "path",
    ["-", "/dev/null", "/dev/full", "gpu.jsonl", "dev/stdout", "/data/dev/stdout", "/dev/fd/10"],
)
def test_other_paths_are_checked_at_the_start_only(path: str) -> None:
    assert list(Options(path=path).problems()) == []


def test_the_error_names_file_line_and_column() -> None:
    text = (
        "sources:\n  gpus: {kind: nvml}\nsinks:\n  lines:\n    kind: jsonl\n    path: /dev/stdout\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, RegisteredKinds(), env={}, origin="f")
    assert str(caught.value) == (
        'f:6:11: sinks.lines.path: /dev/stdout is standard output: use "-"'
    )


@pytest.mark.parametrize(
    ("settings", "key", "text"),
    [
        ("path: '-', compress: gzip", "compress", "standard output is not a file"),
        ("path: '-', fsync: 1s", "fsync", "standard output is not a file"),
        ("path: /a, compress: gzip, max_size: 0B", "compress", "no file is rotated"),
        ("path: /a, compress: zip", "compress", "gzip"),
        ("path: /a, fsync: 1ms", "fsync", "1ms is too often: the minimum is 100ms"),
        ("path: /a, fsync: rotate", "fsync", "is not a duration"),
    ],
)
def test_invalid_combinations_of_options_are_rejected(settings: str, key: str, text: str) -> None:
    sinks = f"sources: {{g: {{kind: nvml}}}}\nsinks: {{s: {{kind: jsonl, {settings}}}}}\n"
    with pytest.raises(ConfigError) as caught:
        parse(sinks, RegisteredKinds(), env={}, origin="f")
    assert [problem.path for problem in caught.value.problems] == [f"sinks.s.{key}"]
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        "path: /a, compress: gzip",
        "path: /a, compress: gzip, max_size: 0B, max_age: 1d, fsync: 100ms",
        "path: '-', compress: none, fsync: 0s",
    ],
)
def test_valid_combinations_of_options_are_accepted(settings: str) -> None:
    text = f"sources: {{g: {{kind: nvml}}}}\nsinks: {{s: {{kind: jsonl, {settings}}}}}\n"
    assert parse(text, RegisteredKinds(), env={}, origin="f").sinks


def test_two_sinks_cannot_write_the_same_file() -> None:
    text = (
        "sources: {g: {kind: nvml}}\n"
        "sinks:\n"
        "  a: {kind: jsonl, path: /tmp/lines}\n"
        "  b: {kind: jsonl, path: /tmp/../tmp/lines}\n"
        "  c: {kind: jsonl, path: /tmp/others}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, RegisteredKinds(), env={}, origin="f")
    assert [problem.path for problem in caught.value.problems] == ["sinks.b"]
    assert "a already uses the file /tmp/lines" in str(caught.value)
