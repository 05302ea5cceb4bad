"""Validation of the node sink's options."""

import subprocess
import sys

import pytest

from config.errors import ConfigError
from config.loader import parse
from config.value_types import Duration
from pipeline.component.registry import RegisteredKinds
from pipeline.topology.node_annotation import KEY
from sinks.node.options import Options


def test_the_default_annotation_is_the_one_that_readers_use() -> None:
    assert Options().annotation == KEY


@pytest.mark.parametrize(
    ("options", "place", "message"),
    [
        (Options(node="Node_1"), "node", "kubectl get nodes"),
        (Options(annotation="a b"), "annotation", "1 to 63"),
        (Options(annotation="k8s.io/a"), "annotation", "reserved"),
        (
            Options(min_interval=Duration(60), refresh=Duration(30)),
            "refresh",
            "30s is below min_interval, which is 1m: set refresh to 1m or more",
        ),
    ],
)
def test_invalid_options_are_refused(options: Options, place: str, message: str) -> None:
    [(key, text)] = options.problems()
    assert key == place
    assert message in text


def test_valid_options_are_accepted() -> None:
    equal = Duration(30)
    for options in (Options(), Options(node="node-1"), Options(min_interval=equal, refresh=equal)):
        assert list(options.problems()) == []


@pytest.mark.parametrize(("option", "value"), [("min_interval", "999ms"), ("refresh", "9s")])
def test_intervals_that_load_the_api_server_are_refused(option: str, value: str) -> None:
    text = f"sources: {{g: {{kind: nvml}}}}\nsinks: {{n: {{kind: node, {option}: {value}}}}}\n"
    with pytest.raises(ConfigError, match=option):
        parse(text, RegisteredKinds(), env={}, origin="f")


def test_two_sinks_with_the_same_annotation_are_refused() -> None:
    text = (
        "sources: {g: {kind: nvml}}\n"
        "sinks:\n"
        "  a: {kind: node}\n"
        "  b: {kind: node, kubeconfig: /etc/podgpu/kubeconfig, remove: now}\n"
        "  c: {kind: node, annotation: example.com/gpus}\n"
        "  d: {kind: node, node: node-2}\n"
        "  e: {kind: node, node: node-2, refresh: 1m}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, RegisteredKinds(), env={}, origin="f")
    assert [problem.path for problem in caught.value.problems] == ["sinks.b", "sinks.e"]
    assert "the annotation podgpu.io/topology of the Node node-2" in str(caught.value)


@pytest.mark.parametrize("top", ["node: node-1\n", ""])
def test_a_configured_node_name_equals_the_default_one(
    top: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node-1")
    text = (
        f"{top}sources: {{g: {{kind: nvml}}}}\n"
        "sinks:\n"
        "  a: {kind: node}\n"
        "  b: {kind: node, node: node-1}\n"
        "  c: {kind: node, node: node-2}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, RegisteredKinds(), env={}, origin="f")
    assert [problem.path for problem in caught.value.problems] == ["sinks.b"]


def test_the_options_module_loads_no_large_libraries() -> None:
    code = "import sys, sinks.node.options; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert {b"orjson", b"aiohttp", b"pipeline.topology"}.isdisjoint(loaded.split())
