"""Labels of all objects, additional containers, and the namespace of the dashboards."""

from typing import Any

import pytest

from tests.deploy.manifests import Manifests, Object
from tests.e2e.charts import EVERY, Values
from tests.e2e.helm import Helm
from tests.e2e.installation import merged
from tests.e2e.test_chart_names import ALL

COMMON = {"team": "gpu", "cost-centre": "7"}


def metadata(made: Manifests) -> list[Object]:
    """Return the metadata of all objects, and of the pods in them."""
    pods = [each["spec"]["template"] for each in made.objects if "template" in each.get("spec", {})]
    return [each["metadata"] for each in (*made.objects, *pods)]


@pytest.mark.parametrize("values", [ALL, *EVERY], ids=lambda values: str(values)[:60])
def test_common_labels_are_labels_of_every_object_and_pod(helm: Helm, values: Values) -> None:
    made = helm.with_tests({**values, "commonLabels": COMMON})
    without = [each for each in metadata(made) if not COMMON.items() <= each["labels"].items()]
    assert without == []


def test_common_labels_are_in_no_selector(helm: Helm) -> None:
    """Selectors cannot be changed, so an upgrade with another label would fail."""
    before, after = helm.template(ALL), helm.template({**ALL, "commonLabels": COMMON})

    def selectors(value: Any) -> list[Any]:
        if isinstance(value, list):
            return [found for each in value for found in selectors(each)]
        if not isinstance(value, dict):
            return []
        own = [value[key] for key in ("selector", "podSelector", "matchLabels") if key in value]
        return own + [found for each in value.values() for found in selectors(each)]

    assert selectors(after.objects) == selectors(before.objects) != []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"podLabels": {"team": "own"}}, "pod"),
        ({"serviceMonitor": {"additionalLabels": {"team": "own"}}}, "ServiceMonitor"),
        ({"prometheusRule": {"additionalLabels": {"team": "own"}}}, "PrometheusRule"),
        ({"dashboards": {"labels": {"team": "own"}}}, "ConfigMap"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_label_of_one_object_takes_precedence(helm: Helm, values: Values, kind: str) -> None:
    made = helm.template(merged({**ALL, "commonLabels": COMMON}, values))
    pod = made.one("DaemonSet")["spec"]["template"]
    found = [pod] if kind == "pod" else made.all(kind)
    labels = [each["metadata"]["labels"] for each in found]
    assert {"team": "own", "cost-centre": "7"}.items() <= labels[-1].items()
    # A repeated key would be the last one for this reader, and an error for others.
    assert made.text.count("team: own") == len([each for each in labels if each["team"] == "own"])


def test_dashboards_can_be_in_another_namespace(helm: Helm) -> None:
    def namespaces(**dashboards: Any) -> set[str]:
        made = helm.template({"dashboards": {"enabled": True, **dashboards}})
        found = [each["metadata"] for each in made.all("ConfigMap")]
        return {each["namespace"] for each in found if "grafana_dashboard" in each["labels"]}

    assert namespaces() == {"podgpu"}
    assert namespaces(namespace="monitoring") == {"monitoring"}


SIDECAR: Object = {
    "name": "proxy",
    "image": "registry.example/proxy:1",
    "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
}


def test_additional_containers_run_beside_podgpu(helm: Helm) -> None:
    pod = helm.template({"extraContainers": [SIDECAR]}).pod
    assert pod["containers"] == [*helm.template().pod["containers"], SIDECAR]


def test_openshift_allows_what_additional_containers_need(helm: Helm) -> None:
    values: Values = {"distribution": "openshift", "extraContainers": [SIDECAR]}
    scc = helm.template(values).one("SecurityContextConstraints")
    assert scc["allowedCapabilities"] == ["NET_ADMIN"]
    assert scc["readOnlyRootFilesystem"] is False
