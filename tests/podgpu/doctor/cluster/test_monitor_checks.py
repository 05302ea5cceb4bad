"""`cluster.servicemonitor`, provoked on objects as an API server has them."""

import pytest

from pipeline.component.findings import Verdict
from podgpu.doctor.cluster import monitor_checks
from tests.podgpu.doctor.cluster.objects import Raw, cluster, daemonset, raw
from tests.podgpu.doctor.cluster.scraping import EVERYTHING, PORT, SERVICE, monitor, prometheus
from tests.podgpu.doctor.support import is_bad, of

TAKES: list[tuple[Raw, Raw]] = [
    (monitor(), prometheus(serviceMonitorSelector={}, serviceMonitorNamespaceSelector={})),
    (
        monitor(namespace="prom", spec={"namespaceSelector": {"any": True}}),
        prometheus(serviceMonitorSelector={}),
    ),
    (
        monitor(release="kps"),
        prometheus(
            serviceMonitorSelector={"matchLabels": {"release": "kps"}},
            serviceMonitorNamespaceSelector={"matchLabels": {"team": "infra"}},
        ),
    ),
    (
        monitor("PodMonitor"),
        prometheus(podMonitorSelector={}, podMonitorNamespaceSelector={}),
    ),
]


@pytest.mark.parametrize(("made", "who"), TAKES)
def test_a_monitor_that_is_taken(made: Raw, who: Raw) -> None:
    given_out = of(
        monitor_checks.check_monitors(cluster(monitors=[made], prometheuses=[who])),
        "cluster.servicemonitor",
    )
    assert given_out.verdict is Verdict.OK, given_out
    assert given_out.observed == "selected by Prometheus prom/main"


REFUSES: list[tuple[Raw, Raw, str, str]] = [
    (monitor(), prometheus(), "serviceMonitorSelector is not set", "serviceMonitorSelector: {}"),
    (
        monitor(team="x"),
        prometheus(serviceMonitorSelector={"matchLabels": {"release": "kps"}}),
        "wants labels release=kps, but it has team=x",
        "additionalLabels: {release: kps}",
    ),
    (
        monitor(),
        prometheus(serviceMonitorSelector={}),
        "only in its own namespace",
        "the namespace of the Prometheus",
    ),
    (
        monitor(),
        prometheus(
            serviceMonitorSelector={},
            serviceMonitorNamespaceSelector={"matchLabels": {"team": "ml"}},
        ),
        "wants namespaces with labels team=ml, which mon does not have",
        "give its namespace the labels",
    ),
    (
        monitor("PodMonitor"),
        prometheus(serviceMonitorSelector={}, serviceMonitorNamespaceSelector={}),
        "podMonitorSelector is not set",
        "podMonitorSelector: {}",
    ),
]


@pytest.mark.parametrize(("made", "who", "saw", "repair"), REFUSES)
def test_a_monitor_that_no_prometheus_takes(made: Raw, who: Raw, saw: str, repair: str) -> None:
    given_out = of(
        monitor_checks.check_monitors(cluster(monitors=[made], prometheuses=[who])),
        "cluster.servicemonitor",
    )
    is_bad(given_out, "warning", saw, repair)
    assert "Prometheus prom/main" in given_out.observed


NAMED: Raw = {"matchLabels": {"app.kubernetes.io/name": "podgpu"}}
ELSEWHERE: Raw = {"namespaceSelector": {"matchNames": ["mon"]}}
FOREIGN = {**SERVICE, "spec": {"selector": {"app": "x"}, "ports": [{"name": "metrics"}]}}
LEADS: list[tuple[Raw, list[Raw], str, str]] = [
    (monitor(spec=PORT), [SERVICE], "", ""),
    (monitor(namespace="prom", spec={**PORT, **ELSEWHERE}), [SERVICE], "", ""),
    (monitor(namespace="prom", spec={"namespaceSelector": {"any": True}}), [SERVICE], "", ""),
    (monitor(spec={"endpoints": [{"targetPort": 9400}]}), [SERVICE], "", ""),
    (
        monitor(namespace="prom"),
        [SERVICE],
        "does not select podgpu's namespace",
        "matchNames: [mon]",
    ),
    (
        monitor(spec={"namespaceSelector": {"matchNames": ["a"]}}),
        [SERVICE],
        "does not select podgpu's namespace: mon",
        "matchNames: [mon]",
    ),
    (
        {
            **monitor(spec={"selector": {"matchLabels": {"app": "x"}}}),
            "metadata": {"name": "podgpu", "namespace": "mon"},
        },
        [SERVICE],
        "selects no Service of podgpu",
        "labels of podgpu's Service",
    ),
    (monitor(), [], "selects no Service of podgpu", "labels of podgpu's Service"),
    (monitor(), [FOREIGN], "selects no Service of podgpu", "labels of podgpu's Service"),
    (
        monitor(spec={"endpoints": [{"port": "nosuch"}]}),
        [SERVICE],
        "names the port nosuch, but Service mon/gpu has metrics",
        "one of the ports of Service mon/gpu",
    ),
    (monitor("PodMonitor", spec={"podMetricsEndpoints": [{"port": "web"}]}), [], "", ""),
    (
        monitor("PodMonitor", spec={"podMetricsEndpoints": [{"port": "metrics"}]}),
        [],
        "names the port metrics, but DaemonSet mon/podgpu has web",
        "one of the ports of DaemonSet mon/podgpu",
    ),
    (
        {
            **monitor("PodMonitor", spec={"selector": {"matchLabels": {"app": "x"}}}),
            "metadata": {"name": "podgpu", "namespace": "mon"},
        },
        [],
        "selects no pod of podgpu",
        "labels of podgpu's pods",
    ),
]


@pytest.mark.parametrize("row", LEADS, ids=lambda row: row[2])
@pytest.mark.parametrize("taken", [True, False], ids=["with a Prometheus", "without"])
def test_a_monitor_has_to_lead_to_podgpu(row: tuple[Raw, list[Raw], str, str], taken: bool) -> None:
    made, services, saw, repair = row
    ours = daemonset(spec={"containers": [{"image": "x/podgpu:1", "ports": [{"name": "web"}]}]})
    found = cluster(
        daemonsets=[ours],
        monitors=[made],
        services=services,
        prometheuses=[EVERYTHING] if taken else [],
    )
    given_out = of(monitor_checks.check_monitors(found), "cluster.servicemonitor")
    if saw:
        is_bad(given_out, "warning", saw, repair)
    else:
        assert given_out.verdict is (Verdict.OK if taken else Verdict.SKIPPED), given_out


def test_monitors_of_others_are_none_of_podgpu_s() -> None:
    other = raw("ServiceMonitor", "etcd", "mon", spec={"selector": {"matchLabels": {"a": "b"}}})
    everything = raw("ServiceMonitor", "all", "mon", spec={"selector": {}})
    for found in ([other], [everything], []):
        given_out = of(
            monitor_checks.check_monitors(cluster(monitors=found, prometheuses=[prometheus()])),
            "cluster.servicemonitor",
        )
        assert given_out.verdict is Verdict.SKIPPED
    alone = of(
        monitor_checks.check_monitors(cluster(monitors=[monitor()])), "cluster.servicemonitor"
    )
    assert alone.verdict is Verdict.SKIPPED
