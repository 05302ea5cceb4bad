"""The options of replay in a configuration file."""

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sources.replay.options import Options


def options(*lines: str) -> object:
    text = "\n".join(
        [
            "sources:",
            "  replay:",
            "    kind: replay",
            *(f"    {line}" for line in lines),
            "sinks:",
            "  out: {kind: jsonl}",
        ]
    )
    config = parse(text, RegisteredKinds(), env={}, origin="podgpu.yaml")
    return config.sources["replay"].options


def test_only_the_path_is_required() -> None:
    assert options("path: node.podgpu.gz") == Options(
        path="node.podgpu.gz", speed=1.0, loop=False, time="current"
    )
    with pytest.raises(ConfigError, match="path"):
        options()


def test_all_options_can_be_given() -> None:
    assert options("path: builtin:demo", "speed: 10", "loop: true", "time: original") == Options(
        path="builtin:demo", speed=10.0, loop=True, time="original"
    )


@pytest.mark.parametrize(
    "line", ["speed: 0", "speed: -1", "speed: .inf", "speed: 1e9", "time: yesterday", 'path: ""']
)
def test_an_invalid_value_is_refused_with_the_name_of_the_option(line: str) -> None:
    with pytest.raises(ConfigError, match=line.split(":", maxsplit=1)[0]):
        options("path: x", line) if not line.startswith("path") else options(line)
