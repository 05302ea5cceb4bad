"""Tests of queue options that are refused in any sink."""

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds

SINKS = ["kind: otlp", "kind: jsonl"]


def check(*sinks: str) -> list[str]:
    lines = "".join(f"  s{at}: {{{sink}}}\n" for at, sink in enumerate(sinks))
    text = f"sources: {{gpus: {{kind: nvml}}}}\nsinks:\n{lines}"
    try:
        parse(text, RegisteredKinds(), env={}, origin="x.yaml")
    except ConfigError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


@pytest.mark.parametrize("sink", SINKS)
def test_the_path_of_a_queue_must_be_absolute(sink: str) -> None:
    assert check(f"{sink}, queue: {{path: /var/lib/q}}") == []
    assert check(f"{sink}, queue: {{path: q/rel}}") == [
        "sinks.s0.queue.path: q/rel is a relative path; write the absolute path"
    ]


@pytest.mark.parametrize("other", SINKS)
def test_two_sinks_cannot_use_the_same_folder(other: str) -> None:
    found = check(
        "kind: otlp, queue: {path: /var/lib/q}",
        f'{other}, queue: {{path: "/var/lib/./q/"}}'
        + (", path: /tmp/lines" if other == "kind: jsonl" else ""),
    )
    assert found == ["sinks.s1: s0 already uses the folder /var/lib/q"]
