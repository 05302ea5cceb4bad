"""XID errors, lost GPUs, missing drivers and restarts, as seen by Prometheus."""

import json
import time

import pytest

from tests.e2e.conftest import Start
from tests.e2e.node import FAST, SLOW, Node
from tests.e2e.processes import wait_until
from tests.e2e.prometheus import INTERVAL
from tests.e2e.scenes import ALL, distinct
from tests.fakes.nvml import Scenario

OTHERS = ["0", "2", "3"]

STALE_WITHIN = 3 * SLOW + FAST + INTERVAL + 3
"""Three slow intervals, a round, a scrape, and reserve for a busy machine."""


def test_increase_counts_the_first_xid_error(start: Start) -> None:
    node = start(distinct())
    counter = 'podgpu_xid_errors_total{$i,gpu="1",xid="48"}'
    node.wait_scraped(3, "podgpu_xid_errors_total")
    assert node.one(counter) == 0
    assert node.one(f"increase({counter}[30s])") == 0
    node.fake.push_xid(1, 48)
    node.wait(counter, {"1": 1})
    assert node.one(f"changes({counter}[30s])") == 1
    # Not exactly 1, because Prometheus extrapolates to the end of the window.
    assert node.one(f"increase({counter}[30s])") == pytest.approx(1, abs=0.5)
    assert (node.one(f"rate({counter}[30s])") or 0) > 0
    assert node.gpus("DCGM_FI_DEV_XID_ERRORS{$i}") == {"0": 0, "1": 48, "2": 0, "3": 0}
    assert node.gpus("sum by (gpu) (podgpu_xid_errors_total{$i}) > 0") == {"1": 1}
    seen = node.one('podgpu_xid_last_seen_timestamp_seconds{$i,xid="48"}')
    assert seen == pytest.approx(time.time(), abs=20)


def test_an_xid_code_has_a_series_after_its_first_error(start: Start) -> None:
    node = start(distinct())
    node.wait_scraped()
    counter = 'podgpu_xid_errors_total{$i,xid="61"}'
    assert node.query(counter) == []
    node.fake.push_xid(0, 61)
    node.wait(counter, {"0": 1})
    node.fake.push_xid(0, 61)
    node.wait(counter, {"0": 2})


def dcgm(node: Node) -> dict[str, float]:
    """Return the number of DCGM series by GPU, without the last XID, which podgpu generates."""
    names = '__name__=~"DCGM_.*",__name__!="DCGM_FI_DEV_XID_ERRORS"'
    return node.gpus(f"count by (gpu) ({{{names},$i}})")


def test_a_lost_gpu_has_no_readings_and_the_others_continue(start: Start) -> None:
    node = start(distinct())
    node.wait_scraped(2)
    since = min(node.times('DCGM_FI_DEV_GPU_TEMP{$i,gpu="0"}', time.time() - 60))
    wait_until(
        lambda: len(set(dcgm(node).values())) == 1, "all GPUs have the same number of series"
    )
    before = dcgm(node)
    node.fake.set(distinct().with_gpu(1, lost=True))
    lost_at = time.monotonic()
    node.wait("podgpu_gpu_up{$i}", {"0": 1, "1": 0, "2": 1, "3": 1})
    wait_until(lambda: dcgm(node).keys() == set(OTHERS), "stale", STALE_WITHIN)
    assert time.monotonic() - lost_at < STALE_WITHIN
    assert node.by("state", "podgpu_gpus{$i}") == {"present": 3, "expected": 4}
    assert node.one('podgpu_source_up{$i,source="gpus"}') == 1
    node.wait_scrapes_more(2)
    assert dcgm(node) == {gpu: before[gpu] for gpu in OTHERS}
    node.fake.set(distinct())
    node.wait("podgpu_gpu_up{$i}", dict.fromkeys(ALL, 1))
    wait_until(lambda: dcgm(node) == before, "all series exist again")
    ups = node.times("up{$i}", since)
    for gpu in OTHERS:
        assert node.times(f'DCGM_FI_DEV_GPU_TEMP{{$i,gpu="{gpu}"}}', since) >= ups
    assert ups - node.times('DCGM_FI_DEV_GPU_TEMP{$i,gpu="1"}', since)


def test_a_gpu_that_is_no_longer_enumerated_is_down(start: Start) -> None:
    node = start(distinct())
    node.wait_scraped(2)
    node.fake.set(distinct().without_gpu(3))
    node.wait("podgpu_gpu_up{$i}", {"0": 1, "1": 1, "2": 1, "3": 0})
    wait_until(lambda: dcgm(node).keys() == {"0", "1", "2"}, "stale", STALE_WITHIN)
    assert node.by("state", "podgpu_gpus{$i}") == {"present": 3, "expected": 4}


def test_a_driver_that_is_loaded_later_is_used(start: Start) -> None:
    node = start(Scenario(init_error=9))
    node.wait('podgpu_source_up{$i,source="gpus"}', {"gpus": 0}, "source")
    wait_until(lambda: node.get("/readyz").status == 200, "ready without GPUs")
    assert node.get("/healthz").status == 200
    assert node.query('{$i,__name__=~"DCGM_.*|podgpu_gpu_up"}') == []
    assert node.one("up{$i}") == 1
    node.fake.set(distinct())
    node.wait_scraped()
    node.wait("podgpu_gpu_up{$i}", dict.fromkeys(ALL, 1))
    node.wait('podgpu_source_up{$i,source="gpus"}', {"gpus": 1}, "source")
    assert "driver_not_loaded" in node.output()
    assert "Traceback" not in node.output()


def test_without_a_driver_library_podgpu_keeps_running(start: Start) -> None:
    node = start(distinct())
    node.stop()
    node.start({"LD_LIBRARY_PATH": ""})
    wait_until(lambda: node.get("/readyz").status == 200, "ready without GPUs")
    assert 'podgpu_source_up{source="gpus",kind="nvml"} 0' in node.page()
    node.wait_scrapes_more(2)
    node.wait('podgpu_source_up{$i,source="gpus"}', {"gpus": 0}, "source")
    node.wait('podgpu_source_up{$i,source="podlist"}', {"podlist": 1}, "source")
    assert node.one("up{$i}") == 1
    assert "libnvidia-ml" in node.output()
    assert "Traceback" not in node.output()
    assert node.stop() == 0


def test_series_end_at_a_stop_and_continue_after_a_start(start: Start) -> None:
    node = start(distinct())
    node.hold({"train-0": [distinct().gpus[0].uuid]})
    node.wait_scraped(2)
    assert node.stop() == 0
    assert "Traceback" not in node.output()
    lines = [json.loads(line) for line in node.settings.jsonl.read_text().splitlines()]
    indexes = {line["device"]["index"] for line in lines if line["record"] == "device"}
    assert indexes == {0, 1, 2, 3}
    node.wait("up{$i}", {"": 0})
    # No series stays for the five minutes of Prometheus' lookback.
    assert node.query('{$i,__name__=~"DCGM_.*|podgpu_.*|process_.*"}') == []
    started = node.one("max_over_time(process_start_time_seconds{$i}[1m])") or 0
    node.start()
    node.wait("up{$i}", {"": 1})
    node.wait("DCGM_FI_DEV_GPU_TEMP{$i}", {"0": 41, "1": 42, "2": 43, "3": 44})
    node.wait('count by (pod) (DCGM_FI_DEV_GPU_TEMP{$i,pod!=""})', {"train-0": 1}, "pod")
    assert (node.one("process_start_time_seconds{$i}") or 0) > started
