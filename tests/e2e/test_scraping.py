"""Prometheus takes every page, whole and without a complaint."""

import pytest

from tests.e2e.conftest import Start
from tests.e2e.node import Node
from tests.e2e.processes import wait_until
from tests.e2e.prometheus import HONOURED, OVERRIDDEN, Server
from tests.e2e.scenes import ALL, WATTS, distinct, mixed
from tests.fakes.nvml import Scenario, mig_node

SCENES = {"plain GPUs": (distinct, 4, 0), "mixed MIG": (mixed, 4, 4), "8x7 MIG": (mig_node, 8, 56)}


def targets(node: Node) -> list[dict[str, str]]:
    found = node.server.api("targets", state="active")["activeTargets"]
    address = f"http://127.0.0.1:{node.settings.port}/metrics"
    return [target for target in found if target["scrapeUrl"] == address]


@pytest.mark.parametrize("scene", list(SCENES))
def test_prometheus_accepts_every_scrape(start: Start, prometheus: Server, scene: str) -> None:
    make, gpus, instances = SCENES[scene]
    scenario: Scenario = make()
    node = start(scenario)
    uuids = [gpu.uuid for gpu in scenario.gpus]
    uuids += [mig.uuid for gpu in scenario.gpus for mig in gpu.mig or ()]
    # A holder for every other device, and two for the last.
    node.hold({f"train-{at}": [uuid, uuids[-1]] for at, uuid in enumerate(uuids[::2])})
    for job in ("$i", "$o"):
        # Each of the last scrapes, of which there are five or more.
        good = f"(min_over_time(up{{{job}}}[5s]) == 1) and (count_over_time(up{{{job}}}[5s]) >= 5)"
        wait_until(lambda expr=good: node.query(expr), good)  # type: ignore[misc]
        assert (node.one(f"scrape_samples_scraped{{{job}}}") or 0) > 30 * gpus
        # As many series as samples: a series that is on the page twice would be one too few, and
        # if both had the same value Prometheus would not even warn.
        own = '__name__!~"up|scrape_.*"'
        twice = f"scrape_samples_scraped{{{job}}} - on () count({{{own},{job}}})"
        wait_until(lambda expr=twice: node.one(expr) == 0, twice)  # type: ignore[misc]
    assert {target["scrapePool"] for target in targets(node)} == {HONOURED, OVERRIDDEN}
    for target in targets(node):
        assert (target["health"], target["lastError"]) == ("up", "")
    assert len(node.gpus("podgpu_gpu_up{$i} == 1")) == gpus
    assert node.one("count(DCGM_FI_DEV_GPU_TEMP{$i})") == gpus
    assert node.one("count(DCGM_FI_DEV_FB_USED{$i})") == gpus + instances
    assert prometheus.dropped() == {}


def test_prometheus_scrapes_the_openmetrics_format(start: Start) -> None:
    """Prometheus prefers it, and read the page that way: the types say so.

    In the text format DCGM's counter would be a counter, and podgpu's would end with `_total`.
    """
    node = start(distinct())
    node.wait_scraped(2)

    def type_of(metric: str) -> set[str]:
        selector = f'{{job="{HONOURED}",instance="127.0.0.1:{node.settings.port}"}}'
        data = node.server.api("targets/metadata", match_target=selector, metric=metric)
        return {entry["type"] for entry in data}

    wait_until(
        lambda: type_of("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") == {"unknown"}, "OpenMetrics types"
    )
    assert type_of("podgpu_xid_errors") == {"counter"}
    assert type_of("DCGM_FI_DEV_GPU_TEMP") == {"gauge"}


def test_rate_of_the_energy_counter_is_the_power(start: Start) -> None:
    """`rate()` works on DCGM's counters, though they don't end with `_total`."""
    node = start(distinct())
    node.wait_scraped(8, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    watts = node.gpus("rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{$i}[8s]) / 1000")
    assert sorted(watts) == ALL
    # A slow round and a scrape are each up to a second away from the window's ends.
    for found in watts.values():
        assert found == pytest.approx(WATTS, rel=0.3)
