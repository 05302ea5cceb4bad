"""What may be configured."""

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


def test_defaults() -> None:
    assert options() == Options(kubeconfig=None, resources=("*",))


def test_what_is_given() -> None:
    assert options(', kubeconfig: /etc/k, resources: ["nvidia.com/*"]') == Options(
        kubeconfig=Path("/etc/k"), resources=("nvidia.com/*",)
    )


@pytest.mark.parametrize(
    ("more", "given_out"),
    [
        (", resources: []", ""),
        (", resources: nvidia.com/gpu", ""),
        (", node: x", ""),
        (', resources: [""]', "an empty pattern matches no resource"),
        (', resources: ["nvidia.com/gpu", " "]', "an empty pattern matches no resource"),
    ],
)
def test_what_is_refused(more: str, given_out: str) -> None:
    with pytest.raises(Exception, match=rf"sinks\.pods[^\n]*\n?[^\n]*{given_out}"):
        options(more)


def test_two_of_them_are_one_too_many() -> None:
    with pytest.raises(Exception, match="pods already uses the annotations of this node's pods"):
        options("}, more: {kind: pods, resources: [nvidia.com/gpu]")


def test_options_load_no_more_than_they_need() -> None:
    heavy = "{'asyncio', 'aiohttp', 'orjson', 'kubernetes_asyncio'}"
    code = f"import sys, sinks.pods.options; print(sorted({heavy} & set(sys.modules)))"
    found = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
