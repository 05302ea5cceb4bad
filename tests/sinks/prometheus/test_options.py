"""Configuration errors of the sink `prometheus`."""

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sinks.prometheus.options import OWN_PATHS

FILE = """\
sources:
  gpus: {kind: nvml}
sinks:
"""


def problems(*sinks: str) -> list[str]:
    text = FILE + "".join(f"  {sink}\n" for sink in sinks)
    try:
        parse(text, RegisteredKinds(), env={}, origin="f")
    except ConfigError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("path", sorted(OWN_PATHS - {"/"}))
def test_podgpus_own_paths_are_rejected(path: str) -> None:
    [problem] = problems(f'm: {{kind: prometheus, path: "{path}"}}')
    assert f"{path} is used by podgpu itself" in problem


def test_a_path_can_be_used_by_one_sink_only() -> None:
    [problem] = problems("a: {kind: prometheus}", "b: {kind: prometheus}")
    assert problem.startswith("f:5:")
    assert "sinks.b: a already uses /metrics on :9400" in problem


def test_other_paths_and_other_addresses_are_accepted() -> None:
    assert not problems(
        "a: {kind: prometheus}",
        "b: {kind: prometheus, path: /other}",
        'c: {kind: prometheus, listen: ":9401"}',
    )
