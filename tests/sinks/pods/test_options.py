"""Options of the pods sink."""

import sys
from pathlib import Path
from subprocess import run

import pytest

from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sinks.pods.options import Options

TEXT = "sources: {{gpus: {{kind: nvml}}}}\nsinks: {{pods: {{kind: pods{more}}}}}\n"


def options(more: str = "") -> object:
    text = TEXT.format(more=more)
    config = parse(text, RegisteredKinds(), env={"NODE_NAME": "node-1"}, origin="test")
    return config.sinks["pods"].options


def test_options_have_defaults() -> None:
    assert options() == Options(kubeconfig=None, resources=("*",))


def test_configured_options_are_read() -> None:
    assert options(', kubeconfig: /etc/k, resources: ["nvidia.com/*"]') == Options(
        kubeconfig=Path("/etc/k"), resources=("nvidia.com/*",)
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (", resources: []", ""),
        (", resources: nvidia.com/gpu", ""),
        (", node: x", ""),
        (', resources: [""]', "an empty pattern matches no resource"),
        (', resources: ["nvidia.com/gpu", " "]', "an empty pattern matches no resource"),
    ],
)
def test_invalid_options_are_refused(more: str, message: str) -> None:
    with pytest.raises(Exception, match=rf"sinks\.pods[^\n]*\n?[^\n]*{message}"):
        options(more)


def test_two_pods_sinks_are_refused() -> None:
    with pytest.raises(Exception, match="pods already uses the annotations of this node's pods"):
        options("}, more: {kind: pods, resources: [nvidia.com/gpu]")


def test_the_options_module_loads_no_large_libraries() -> None:
    heavy = "{'asyncio', 'aiohttp', 'orjson', 'kubernetes_asyncio'}"
    code = f"import sys, sinks.pods.options; print(sorted({heavy} & set(sys.modules)))"
    found = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
