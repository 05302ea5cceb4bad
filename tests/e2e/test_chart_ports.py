"""Where podgpu listens, and how often it is asked."""

import pytest

from tests.e2e.charts import Values, sink
from tests.e2e.helm import Helm, HelmError

SECOND: Values = sink("extra", kind="prometheus", listen=":9500", path="/more", labels="dcgm-old")


def test_a_second_prometheus_sink_does_not_change_the_service_port(helm: Helm) -> None:
    """`extra` comes before `metrics` by name; the Service, the monitor and the alerts stay."""
    shown: Values = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    alone, both = helm.template(shown), helm.template({**SECOND, **shown})
    assert both.container["ports"] == [
        {"name": "metrics", "containerPort": 9400},
        {"name": "listen-9500", "containerPort": 9500},
    ]
    for kind in ("Service", "ServiceMonitor", "PrometheusRule"):
        assert both.one(kind) == alone.one(kind)


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({}, {"metrics": 9400}),
        ({"config": {"http": {"listen": ":9401"}}}, {"metrics": 9400, "listen-9401": 9401}),
        # One listener for both.
        ({"config": {"http": {"listen": ":9400"}}}, {"metrics": 9400}),
        (SECOND, {"metrics": 9400, "listen-9500": 9500}),
        (
            {"config": {"sinks": {**SECOND["config"]["sinks"], "metrics": None}}},
            {"metrics": 9500},
        ),
        (
            {"config": {**SECOND["config"], "http": {"listen": "[::]:9600"}}},
            {"metrics": 9400, "listen-9500": 9500, "listen-9600": 9600},
        ),
        (
            {
                "config": {
                    "http": {"listen": ":9401"},
                    "sinks": {"metrics": None, "lines": {"kind": "jsonl"}},
                }
            },
            {"metrics": 9401},
        ),
        ({"arguments": ["-k"]}, {"metrics": 9400}),
    ],
    ids=str,
)
def test_each_listener_is_a_container_port_and_allowed_by_the_policy(
    helm: Helm, values: Values, ports: dict[str, int]
) -> None:
    made = helm.template({**values, "networkPolicy": {"enabled": True}})
    assert {each["name"]: each["containerPort"] for each in made.container["ports"]} == ports
    (rule,) = made.one("NetworkPolicy")["spec"]["ingress"]
    assert {each["port"] for each in rule["ports"]} == ports.keys()
    (served,) = made.one("Service")["spec"]["ports"]
    assert served["targetPort"] == "metrics"


def test_a_listener_with_a_variable_port_needs_explicit_policy_ports(helm: Helm) -> None:
    """It has no named port, so a network policy would block it."""
    values: Values = {"config": {"http": {"listen": "${LISTEN}"}}}
    assert len(helm.template(values).container["ports"]) == 1
    chosen = {"enabled": True, "ingress": {"ports": [{"port": 9400}]}}
    assert helm.template({**values, "networkPolicy": chosen}).all("NetworkPolicy")
    with pytest.raises(HelmError, match=r"config\.http\.listen: .* has no port"):
        helm.template({**values, "networkPolicy": {"enabled": True}})


@pytest.mark.parametrize(
    ("values", "timeout"),
    [
        ({}, "10s"),
        ({"interval": "15s"}, "10s"),
        ({"interval": "10s"}, "10s"),
        ({"interval": "5s"}, "5s"),
        ({"interval": "500ms"}, "500ms"),
        ({"interval": "1m"}, "10s"),
        ({"interval": "1w"}, "10s"),
        ({"interval": "5s", "scrapeTimeout": "4s"}, "4s"),
        ({"interval": "5s", "scrapeTimeout": "5s"}, "5s"),
        ({"interval": "1m30s", "scrapeTimeout": "90s"}, "90s"),
        ({"interval": "5s", "scrapeTimeout": "6s"}, None),
        ({"interval": "5s", "scrapeTimeout": "5001ms"}, None),
        ({"interval": "30s", "scrapeTimeout": "1m"}, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("pods", [False, True], ids=["ServiceMonitor", "PodMonitor"])
def test_the_scrape_timeout_is_at_most_the_interval(
    helm: Helm, values: dict[str, str], timeout: str | None, pods: bool
) -> None:
    """The Prometheus operator ignores a monitor with a longer timeout."""
    given: Values = {"serviceMonitor": {"enabled": True, **values}, "podMonitor": {"enabled": pods}}
    if timeout is None:
        with pytest.raises(HelmError, match="is longer than the interval"):
            helm.template(given)
        return
    spec = helm.template(given).one("PodMonitor" if pods else "ServiceMonitor")["spec"]
    (endpoint,) = spec["podMetricsEndpoints" if pods else "endpoints"]
    assert endpoint["scrapeTimeout"] == timeout


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, 35),
        ({"serviceMonitor": {"interval": "5s"}}, 15),
        ({"serviceMonitor": {"interval": "60s"}}, 125),
        ({"serviceMonitor": {"interval": "1m30s"}}, 185),
        ({"serviceMonitor": {"interval": "500ms"}}, 7),
        ({"serviceMonitor": {"interval": "60s"}, "minReadySeconds": 3}, 3),
        ({"minReadySeconds": 0}, 0),
    ],
    ids=str,
)
def test_min_ready_seconds_cover_two_scrapes(helm: Helm, values: Values, seconds: int) -> None:
    assert helm.template(values).one("DaemonSet")["spec"]["minReadySeconds"] == seconds
