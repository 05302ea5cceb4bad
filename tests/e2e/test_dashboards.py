"""Run every query of podgpu's dashboards on a real Prometheus that scrapes a podgpu with pods.

The Prometheus scrapes only this node, with honor_labels: as one target, and as two, as during an
update with two podgpus on a node.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.dashboards import FILES, Query, filled, queries, several, variables
from tests.e2e import debian
from tests.e2e.node import Node, running
from tests.e2e.processes import Process, free_ports, wait_until
from tests.e2e.prometheus import EXPORTER, HONOURED, INTERVAL, Server
from tests.e2e.promql import QueriedPrometheus, Series
from tests.e2e.scenes import mixed
from tests.e2e.test_alerts import run
from tests.fakes.nvml import Proc, Scenario
from tests.fakes.nvml.cards import linked
from tests.fakes.nvml.topologies import hgx

WINDOW = 6
"""The window of rates in seconds."""

HEAT_AND_POWER = 0x24
XID = 31

EMPTY = {
    "fleet: Use: GPUs held and free: C",  # all holders are known
    "fleet: Use: GPUs held and free: D",  # no GPU is down
    "fleet: Faults: GPUs down and their holders: A",
    "fleet: Faults: GPUs that need attention: A",
    "fleet: Faults: GPUs that need attention: C",
    "fleet: Faults: GPUs that need attention: D",
    "pods: Pods: Workloads: A",  # needs an API server
}
"""Queries without a result on this node, which does not have every fault."""


class SingleNodePrometheus(Server):
    """A Prometheus that scrapes one podgpu, as one target or as two."""

    def __init__(self, programs: debian.Prometheus, folder: Path, *, twice: bool) -> None:
        target, port = free_ports(2)
        self._targets = [target]
        addresses = [f"127.0.0.1:{target}", *(["10.0.0.2:9400"] if twice else [])]
        job = {
            "job_name": HONOURED,
            "honor_labels": True,
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{target}"],
                    "labels": {**EXPORTER, "instance": address},
                }
                for address in addresses
            ],
        }
        every = f"{INTERVAL:g}s"
        config = folder / "prometheus.json"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": every, "scrape_timeout": every},
                    "scrape_configs": [job],
                }
            )
        )
        process = Process(
            [
                programs.server,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            folder / "prometheus.log",
        )
        QueriedPrometheus.__init__(self, process, port)


def scene() -> Scenario:
    """Return four H100s with NVSwitches, two with MIG; GPU 2 is hot and has a memory error."""
    links = linked()
    scenario = mixed()
    for at, (gpu, joined) in enumerate(zip(scenario.gpus, hgx(4).gpus, strict=True)):
        values = {**joined.values, **links["values"], **gpu.values}
        if at == 2:
            values |= {"clocks_event_reasons": HEAT_AND_POWER, "remapped_pending": 1}
        scenario = scenario.with_gpu(
            at, values=values, fields=links["fields"], remotes=joined.remotes
        )
    return scenario.with_gpu(0, processes=[Proc(4711)])


@pytest.fixture(scope="module", params=["one target", "two targets"])
def node(
    request: pytest.FixtureRequest,
    programs: debian.Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Node]:
    """train-0 holds GPU 0, train-1 an instance of GPU 1, and both share GPU 2."""
    folder = tmp_path_factory.mktemp("dashboards")
    server = SingleNodePrometheus(programs, folder, twice=request.param == "two targets")
    try:
        server.wait_ready()
        scenario = scene()
        with running(server, folder / "node", scenario) as node:
            first, cut, shared, _ = scenario.gpus
            assert cut.mig
            node.hold(
                {
                    "train-0": [first.uuid, shared.uuid],
                    "train-1": [shared.uuid, cut.mig[0].uuid],
                }
            )
            wait_until(lambda: node.query("podgpu_xid_errors_total{$i}"), "XIDs")
            node.fake.push_xid(0, XID)
            node.wait(f'podgpu_xid_errors_total{{$i,xid="{XID}"}} > 0', {"0": 1})
            node.wait("count by (pod) (podgpu_device_holder_info{$i})", HELD, "pod")
            node.wait_scraped(WINDOW, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
            yield node
    finally:
        status = server.process.stop()
    assert status == 0, server.process.output()[-3000:]


HELD = {"train-0": 2.0, "train-1": 2.0}


def chosen(node: Node, dashboard: str) -> Mapping[str, str]:
    """Choose values of variables from Prometheus as Grafana does: the first one, or all."""
    values: dict[str, str] = {}
    for name, about in variables(FILES[dashboard]).items():
        definition = filled(about["definition"], values, WINDOW)
        metric, label = definition.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        listed: list[str] = node.server.api(f"label/{label}/values", **{"match[]": metric})
        assert listed, definition
        if not about["includeAll"]:
            values[name] = listed[0]
        else:
            values[name] = about.get("allValue") or several(listed)
    return values


def answer(node: Node, query: Query, values: Mapping[str, str]) -> list[Series]:
    expr = filled(query.expr, values, WINDOW)
    if query.instant:
        return node.server.query(expr)
    now = time.time()
    return node.server.range(expr, now - WINDOW, now)


def test_variables_list_the_expected_values(node: Node) -> None:
    assert chosen(node, "fleet") == {"node": ".*"}
    assert chosen(node, "pods") == {"namespace": ".+", "pod": ".+"}
    of_node = dict(chosen(node, "node"))
    assert f":{node.port}" in of_node.pop("instance")
    assert of_node == {"node": "gpu-node", "gpu": ".*"}


# The dashboard of usage needs the recording rules: see test_demo_dashboards.py.
@pytest.mark.parametrize("name", sorted(FILES.keys() - {"usage"}))
def test_every_query_has_a_result(node: Node, name: str) -> None:
    values = chosen(node, name)
    empty = {
        str(query)
        for query in queries()
        if query.dashboard == name and not answer(node, query, values)
    }
    assert empty == {query for query in EMPTY if query.startswith(f"{name}: ")}


def shown(node: Node, title: str, **choices: str) -> dict[Any, float]:
    """Return the last values of a query by label values."""
    (query,) = (query for query in queries() if str(query) == title)
    found = answer(node, query, {**chosen(node, query.dashboard), **choices})
    return {tuple(series.labels.values()): round(series.value, 6) for series in found}


NUMBERS: Mapping[str, Mapping[tuple[str, ...], float]] = {
    "fleet: Now: Nodes: A": {(): 1},
    "fleet: Now: GPUs: A": {(): 4},
    "fleet: Now: GPUs held: A": {(): 0.75},
    "fleet: Use: Power by node: A": {("gpu-node",): 408},
    "fleet: Now: Utilisation: A": {(): 20},
    "fleet: Now: GPUs down: A": {(): 0},
    "fleet: Use: GPUs held and free: A": {(): 3},
    "fleet: Use: GPUs held and free: B": {(): 1},
    "fleet: Use: GPUs by utilisation: B": {(): 2},
    "fleet: Use: Devices held by namespace: A": {("ml",): 3},
    "fleet: Use: Largest free NVLink group: A": {("gpu-node",): 1},
    "node: Now: GPUs: B": {(): 4},
    "node: Now: Devices held: A": {(): 3},
    "node: Now: XID errors: A": {(): 1},
    "node: Work: Utilisation: A": {("0",): 10, ("2",): 30},
    "node: Power, heat and links: Clock: A": {(str(at),): (1100 + at) * 1e6 for at in range(4)},
    "pods: Now: Devices held: A": {(): 3},
    "pods: Now: Pods: A": {(): 2},
    "pods: Now: Shared devices: A": {(): 1},
}


@pytest.mark.parametrize("title", list(NUMBERS))
def test_queries_show_the_expected_values(node: Node, title: str) -> None:
    assert shown(node, title) == NUMBERS[title]


@pytest.mark.parametrize(
    "title",
    [
        "fleet: Faults: XID errors within the time shown: A",
        "node: Faults: XID errors by container: A",
        "pods: Pods: XID errors by container: A",
    ],
)
def test_an_xid_error_is_shown_once_with_the_affected_pod(node: Node, title: str) -> None:
    (row,) = shown(node, title)
    assert {"0", str(XID), "ml", "train-0", "restart_app"} <= set(row)


def test_variables_for_gpus_and_pods_select_series(node: Node) -> None:
    assert shown(node, "node: Work: Utilisation: A", gpu="(0|1)") == {("0",): 10}
    assert shown(node, "pods: Now: Devices held: A", pod="train-1") == {(): 2}
    assert shown(node, "pods: Now: Shared devices: A", pod="train-1") == {(): 1}


def test_gpus_with_unknown_holders_are_not_counted_as_free(tmp_path: Path) -> None:
    """On five nodes, one GPU is held and two are free; three GPUs are on nodes with unknown
    holders."""
    nodes = {
        "held": ("kubelet", "podresources", "5"),
        "free": ("kubelet", "podresources", "5"),
        "stale": ("kubelet", "podresources", "301"),
        "pods-alone": ("pods", "pods", "5"),
        "no-source": None,
    }
    values: dict[str, str] = {}
    for at, (node, source) in enumerate(nodes.items()):
        place = f'job="podgpu",instance="10.0.0.{at}:9400"'
        for gpu in range(2 if node == "held" else 1):
            card = f'{place},Hostname="{node}",gpu="{gpu}",UUID="GPU-{node}-{gpu}"'
            values[f"podgpu_gpu_up{{{card}}}"] = "1x9"
            values[f"podgpu_device_info{{{card}}}"] = "1x9"
            if (node, gpu) == ("held", 0):
                values[f'podgpu_device_holder_info{{{card},pod="a"}}'] = "1x9"
        if source is not None:
            name, kind, age = source
            source_labels = f'{place},source="{name}",kind="{kind}"'
            values[f"podgpu_attribution_age_seconds{{{source_labels}}}"] = f"{age}x9"
    wanted = {
        "fleet: Now: GPUs held: A": 1 / 3,
        "fleet: Use: GPUs held and free: A": 1,
        "fleet: Use: GPUs held and free: B": 2,
        "fleet: Use: GPUs held and free: C": 3,
    }
    exprs = {
        str(query): filled(query.expr, {"node": ".*"}, WINDOW)
        for query in queries()
        if str(query) in wanted
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": found} for name, found in values.items()],
        "promql_expr_test": [
            {
                "expr": exprs[title],
                "eval_time": "5m",
                "exp_samples": [{"labels": "{}", "value": value}],
            }
            for title, value in wanted.items()
        ],
    }
    cases = tmp_path / "tests.yaml"
    cases.write_text(json.dumps({"rule_files": [], "tests": [test]}))
    run(debian.prometheus().promtool, "test", "rules", cases)


TWICE: Mapping[str, Mapping[str, float]] = {
    "node: Work: Processes: A": {'{gpu="0"}': 3},
    "node: Power, heat and links: NVLink: A": {'{gpu="0"}': 1},
    "node: Power, heat and links: NVLink: B": {'{gpu="0"}': 2},
    "node: Power, heat and links: PCIe: A": {'{gpu="0"}': 3},
    "node: Power, heat and links: PCIe: B": {'{gpu="0"}': 4},
}
"""Expected values for a GPU with two compute processes, one graphics process, and links."""


def test_two_podgpus_on_one_node_double_no_value(tmp_path: Path) -> None:
    """As during an update; readings have labels of the holder."""
    growing = {
        "podgpu_nvlink_transmitted_bytes_total": 1,
        "podgpu_nvlink_received_bytes_total": 2,
        "podgpu_pcie_transmitted_bytes_total": 3,
        "podgpu_pcie_received_bytes_total": 4,
    }
    values: dict[str, str] = {}
    for address in ("10.0.0.1:9400", "10.0.0.2:9400"):
        place = f'job="podgpu",instance="{address}",Hostname="n",gpu="0",UUID="GPU-a",pod="a"'
        for kind, number in (("compute", 2), ("graphics", 1)):
            values[f'podgpu_processes{{{place},kind="{kind}"}}'] = f"{number}x9"
        for name, speed in growing.items():
            values[f"{name}{{{place}}}"] = f"0+{speed * 60}x9"
    choices = {"node": "n", "gpu": ".*", "instance": ".*"}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": found} for name, found in values.items()],
        "promql_expr_test": [
            {
                "expr": filled(query.expr, choices, 240),
                "eval_time": "9m",
                "exp_samples": [
                    {"labels": labels, "value": value}
                    for labels, value in TWICE[str(query)].items()
                ],
            }
            for query in queries()
            if str(query) in TWICE
        ],
    }
    assert len(test["promql_expr_test"]) == len(TWICE)
    cases = tmp_path / "tests.yaml"
    cases.write_text(json.dumps({"rule_files": [], "tests": [test]}))
    run(debian.prometheus().promtool, "test", "rules", cases)


def test_labels_that_change_within_the_time_range_break_no_query(tmp_path: Path) -> None:
    """A GPU gets another index, and another release of podgpu has another text for a code."""
    card = 'Hostname="n",UUID="GPU-a"'
    pod = 'namespace="ml",pod="a",container="c",pod_uid="u"'
    texts = [
        f'podgpu_xid_info{{Hostname="n",xid="79",meaning="{each}",action="x"}}' for each in "ab"
    ]
    seen = [
        f'podgpu_xid_last_seen_timestamp_seconds{{{card},gpu="{at}",xid="79"}}' for at in (0, 1)
    ]
    victim = f'podgpu_container_xid_errors_total{{{card},gpu="1",{pod},xid="79"}}'
    values = {
        seen[0]: "60x3 stale",
        seen[1]: "_x4 60 300x4",
        texts[0]: "1x3 stale",
        texts[1]: "_x4 1x5",
        victim: "_x4 2x5",
    }
    choices = {"node": "n", "gpu": ".*", "namespace": ".+", "pod": ".+", "instance": ".*"}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": found} for name, found in values.items()],
        "promql_expr_test": [
            {
                "expr": f"count({filled(query.expr, choices, 60)})",
                "eval_time": "9m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
            for query in queries()
            if query.panel.startswith("XID errors ") and "podgpu_xid_info" in query.expr
        ],
    }
    assert len(test["promql_expr_test"]) == 3
    cases = tmp_path / "tests.yaml"
    cases.write_text(json.dumps({"rule_files": [], "tests": [test]}))
    run(debian.prometheus().promtool, "test", "rules", cases)
