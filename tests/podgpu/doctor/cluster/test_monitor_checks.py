"""The check `cluster.servicemonitor`."""

import pytest

from pipeline.component.findings import Verdict
from podgpu.doctor.cluster import monitor_checks
from tests.podgpu.doctor.cluster.monitors import EVERYTHING, PORT, SERVICE, monitor, prometheus
from tests.podgpu.doctor.cluster.objects import Raw, cluster, daemonset, raw
from tests.podgpu.doctor.support import is_bad, of

SELECTED: list[tuple[Raw, Raw]] = [
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


@pytest.mark.parametrize(("made", "scraper"), SELECTED)
def test_a_monitor_that_a_prometheus_selects_is_ok(made: Raw, scraper: Raw) -> None:
    finding = of(
        monitor_checks.check_monitors(cluster(monitors=[made], prometheuses=[scraper])),
        "cluster.servicemonitor",
    )
    assert finding.verdict is Verdict.OK, finding
    assert finding.observed == "selected by Prometheus prom/main"


NOT_SELECTED: list[tuple[Raw, Raw, str, str]] = [
    (monitor(), prometheus(), "serviceMonitorSelector is not set", "serviceMonitorSelector: {}"),
    (
        monitor(team="x"),
        prometheus(serviceMonitorSelector={"matchLabels": {"release": "kps"}}),
        "requires labels release=kps, but the monitor has team=x",
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
        "requires namespaces with labels team=ml, which mon does not have",
        "give its namespace the labels",
    ),
    (
        monitor("PodMonitor"),
        prometheus(serviceMonitorSelector={}, serviceMonitorNamespaceSelector={}),
        "podMonitorSelector is not set",
        "podMonitorSelector: {}",
    ),
]


@pytest.mark.parametrize(("made", "scraper", "observed", "fix"), NOT_SELECTED)
def test_a_monitor_that_no_prometheus_selects_is_a_warning(
    made: Raw, scraper: Raw, observed: str, fix: str
) -> None:
    finding = of(
        monitor_checks.check_monitors(cluster(monitors=[made], prometheuses=[scraper])),
        "cluster.servicemonitor",
    )
    is_bad(finding, "warning", observed, fix)
    assert "Prometheus prom/main" in finding.observed


NAMED: Raw = {"matchLabels": {"app.kubernetes.io/name": "podgpu"}}
ELSEWHERE: Raw = {"namespaceSelector": {"matchNames": ["mon"]}}
OTHER_SERVICE = {**SERVICE, "spec": {"selector": {"app": "x"}, "ports": [{"name": "metrics"}]}}
TARGETS: list[tuple[Raw, list[Raw], str, str]] = [
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
    (monitor(), [OTHER_SERVICE], "selects no Service of podgpu", "labels of podgpu's Service"),
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


@pytest.mark.parametrize("row", TARGETS, ids=lambda row: row[2])
@pytest.mark.parametrize("has_prometheus", [True, False], ids=["with a Prometheus", "without"])
def test_a_monitor_has_to_select_podgpu(
    row: tuple[Raw, list[Raw], str, str], has_prometheus: bool
) -> None:
    made, services, observed, fix = row
    ours = daemonset(spec={"containers": [{"image": "x/podgpu:1", "ports": [{"name": "web"}]}]})
    found = cluster(
        daemonsets=[ours],
        monitors=[made],
        services=services,
        prometheuses=[EVERYTHING] if has_prometheus else [],
    )
    finding = of(monitor_checks.check_monitors(found), "cluster.servicemonitor")
    if observed:
        is_bad(finding, "warning", observed, fix)
    else:
        assert finding.verdict is (Verdict.OK if has_prometheus else Verdict.SKIPPED), finding


def test_monitors_of_other_applications_are_ignored() -> None:
    other = raw("ServiceMonitor", "etcd", "mon", spec={"selector": {"matchLabels": {"a": "b"}}})
    everything = raw("ServiceMonitor", "all", "mon", spec={"selector": {}})
    for found in ([other], [everything], []):
        finding = of(
            monitor_checks.check_monitors(cluster(monitors=found, prometheuses=[prometheus()])),
            "cluster.servicemonitor",
        )
        assert finding.verdict is Verdict.SKIPPED
    unused = of(
        monitor_checks.check_monitors(cluster(monitors=[monitor()])), "cluster.servicemonitor"
    )
    assert unused.verdict is Verdict.SKIPPED
