"""A reload leaves no gap, neither for Prometheus nor for a client that requests continuously."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Start
from tests.e2e.node import Node
from tests.e2e.page_watcher import Watcher
from tests.e2e.processes import wait_until
from tests.e2e.scenes import ALL, distinct

CHANGES: dict[str, dict[str, object]] = {
    "other intervals": {"interval": "300ms", "slow_interval": "2s"},
    "another node name: all sinks restart": {"node": "gpu-node-b"},
    "a second page on the same address": {"paths": ("/metrics", "/more")},
    "one sink removed": {"lines": False},
    "another log": {"more": {"log": {"level": "debug", "format": "json"}}},
}


@pytest.fixture
def node(start: Start) -> Node:
    node = start(distinct())
    node.wait_scraped(2)
    return node


@pytest.fixture
def watcher(node: Node) -> Iterator[Watcher]:
    watcher = Watcher(node.settings.port)
    watcher.start()
    yield watcher
    watcher.end()


def assert_no_gap(node: Node, since: float) -> None:
    window = f"[{int(time.time() - since)}s]"
    assert node.one(f"min_over_time(up{{$i}}{window})") == 1
    ups = node.times("up{$i}", since)
    assert len(ups) >= 4
    for gpu in ALL:
        assert node.times(f'DCGM_FI_DEV_GPU_TEMP{{$i,gpu="{gpu}"}}', since) >= ups
    doubles = node.gpus(
        f"max_over_time((count by (gpu) (DCGM_FI_DEV_GPU_TEMP{{$i}})){window[:-1]}:200ms])"
    )
    assert doubles == dict.fromkeys(ALL, 1)


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_reload_leaves_no_gap(node: Node, watcher: Watcher, change: str) -> None:
    since = time.time()
    node.wait_scrapes_more(1)
    node.reconfigure(**CHANGES[change])
    node.wait_scrapes_more(3)
    watcher.end()
    assert watcher.faults == []
    assert watcher.asked > 50
    assert_no_gap(node, since)
    assert node.one('podgpu_config_reloads_total{$i,result="done"}') == 1


def test_the_reloaded_configuration_is_in_force(node: Node) -> None:
    node.reconfigure(node="gpu-node-b", paths=("/metrics", "/more"))
    node.wait("count by (Hostname) (DCGM_FI_DEV_GPU_TEMP{$i})", {"gpu-node-b": 4}, "Hostname")
    assert node.get("/more").status == 200
    node.reconfigure(paths=("/metrics",))
    assert node.get("/more").status == 404


def test_the_metrics_path_can_change(node: Node) -> None:
    """The listener stays; Prometheus sets `up` to 0 because the old path is gone."""
    node.reconfigure(paths=("/telemetry",))
    assert len(re.findall("^DCGM_FI_DEV_GPU_TEMP{", node.page(), re.M)) == 4
    node.wait("up{$i}", {"": 0})
    assert node.query("DCGM_FI_DEV_GPU_TEMP{$i}") == []
    node.reconfigure(paths=("/metrics",))
    node.wait("up{$i}", {"": 1})
    node.wait("count by (gpu) (DCGM_FI_DEV_GPU_TEMP{$i})", dict.fromkeys(ALL, 1))


def test_an_invalid_configuration_file_changes_nothing(node: Node, watcher: Watcher) -> None:
    since = time.time()
    node.config.write_text("sources: [")
    wait_until(lambda: "configuration not reloaded" in node.output(), "the error is logged")
    node.wait_scrapes_more(4)
    watcher.end()
    assert watcher.faults == []
    assert_no_gap(node, since)
