"""Prometheus accepts every page completely."""

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
    # Every second device has a holder, and the last device has several.
    node.hold({f"train-{at}": [uuid, uuids[-1]] for at, uuid in enumerate(uuids[::2])})
    for job in ("$i", "$o"):
        # All of the last scrapes succeeded, and there were at least five.
        good = f"(min_over_time(up{{{job}}}[5s]) == 1) and (count_over_time(up{{{job}}}[5s]) >= 5)"
        wait_until(lambda expr=good: node.query(expr), good)  # type: ignore[misc]
        assert (node.one(f"scrape_samples_scraped{{{job}}}") or 0) > 30 * gpus
        # The number of series equals that of samples. A duplicate series with the same value would
        # cause no warning.
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
    """Prometheus prefers this format, which the types show.

    In the text format, DCGM's counter would have the type counter.
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
    """`rate()` works on DCGM's counters although their names do not end with `_total`."""
    node = start(distinct())
    node.wait_scraped(8, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    watts = node.gpus("rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{$i}[8s]) / 1000")
    assert sorted(watts) == ALL
    # The ends of the window are up to a round and a scrape away from a sample.
    for found in watts.values():
        assert found == pytest.approx(WATTS, rel=0.3)
