"""The format of the page, checked by promtool and the parsers of Prometheus' client library."""

import gzip
import math
import re
import subprocess
from collections.abc import Callable, Iterable
from typing import TypeAlias

import prometheus_client.openmetrics.parser as openmetrics
import prometheus_client.parser as text
import pytest
from prometheus_client import Metric

from tests.e2e import debian
from tests.e2e.conftest import Start
from tests.e2e.node import Node
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct, mixed
from tests.fakes.nvml import Proc, Scenario, mig_node

ENCODINGS = ("identity", "gzip")

Page: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


def busy() -> Scenario:
    """Return a scenario with MIG instances and processes, in which every family has a series."""
    return mixed().with_gpu(0, processes=[Proc(4242), Proc(4243, kind="graphics")])


SCENES: dict[str, Callable[[], Scenario]] = {
    "plain GPUs": distinct,
    "mixed MIG": busy,
    "8x7 MIG": mig_node,
    "no driver": lambda: Scenario(init_error=9),
}

FORMATS = {
    "text": ("text/plain; version=0.0.4", text.text_string_to_metric_families),
    "OpenMetrics": (
        "application/openmetrics-text; version=1.0.0",
        openmetrics.text_string_to_metric_families,
    ),
}


def ready(node: Node, scene: str) -> None:
    if scene == "no driver":
        wait_until(lambda: node.get("/readyz").status == 200, "readiness")
        return
    uuids = [gpu.uuid for gpu in SCENES[scene]().gpus]
    node.hold({"train-0": uuids[:2], "serve-a": uuids[1:2]})
    # The counters exist once podgpu waits for driver events; an earlier error would be lost.
    wait_until(lambda: "podgpu_xid_errors_total{" in node.page(), "the XID counters")
    node.fake.push_xid(0, 79)
    wait_until(lambda: "podgpu_xid_last_seen_timestamp_seconds{" in node.page(), "the XID")
    wait_until(lambda: 'pod="serve-a"' in node.page(), "the holders")


def read(node: Node, name: str, encoding: str) -> Page:
    accepted, parse = FORMATS[name]
    answer = node.get("/metrics", {"Accept": accepted, "Accept-Encoding": encoding})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith(accepted)
    compressed = answer.headers.get("content-encoding") == "gzip"
    assert compressed == (encoding == "gzip")
    body = gzip.decompress(answer.body) if compressed else answer.body
    return parsed(parse(body.decode()))


def parsed(families: Iterable[Metric]) -> Page:
    """Return the samples; assert that families and series are unique."""
    names: set[str] = set()
    found: Page = {}
    for family in families:
        assert family.name not in names
        names.add(family.name)
        for sample in family.samples:
            # The parser of the text format adds `_total` to every counter.
            dcgm = sample.name.startswith("DCGM_")
            name = sample.name.removesuffix("_total") if dcgm else sample.name
            key = name, frozenset(sample.labels.items())
            assert key not in found
            assert math.isfinite(sample.value)
            assert sample.timestamp is None
            found[key] = float(sample.value)
    return found


@pytest.mark.parametrize("scene", list(SCENES))
def test_both_client_parsers_read_the_page(start: Start, scene: str) -> None:
    node = start(SCENES[scene]())
    ready(node, scene)
    pages: list[Page] = []

    def agree() -> bool:
        pages[:] = [read(node, name, encoding) for name in FORMATS for encoding in ENCODINGS]
        return all(page.keys() == pages[0].keys() for page in pages)

    # Retried, because a podgpu that has just started gets more series with each round.
    wait_until(agree, "the same series in every format")
    devices = sum(1 for name, _ in pages[0] if name == "podgpu_device_info")
    assert devices == {"plain GPUs": 4, "mixed MIG": 8, "8x7 MIG": 64, "no driver": 0}[scene]


@pytest.mark.parametrize("scene", list(SCENES))
def test_promtool_finds_no_problem_in_the_page(
    start: Start, programs: debian.Prometheus, scene: str
) -> None:
    """Only podgpu's own names are checked, because DCGM's names do not follow the rules."""
    node = start(SCENES[scene]())
    ready(node, scene)
    lines = node.page().splitlines(keepends=True)
    own = [line for line in lines if not re.match(r"(# (HELP|TYPE) )?DCGM_", line)]
    assert any(line.startswith("process_") for line in own)
    linted = subprocess.run(
        [programs.promtool, "check", "metrics"],
        input="".join(own),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (linted.stdout, linted.stderr, linted.returncode) == ("", "", 0)
