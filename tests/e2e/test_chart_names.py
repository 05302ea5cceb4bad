"""Names that YAML reads as another type, and names of cluster-scoped objects."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.manifests import Manifests
from tests.deploy.places import CHART
from tests.e2e.charts import Values, source
from tests.e2e.helm import Helm

ALL: Values = {
    "createNamespace": True,
    "criticalQuota": True,
    "distribution": "openshift",
    "extender": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "tlsServerConfig": {"enabled": True, "existingSecret": "7"},
    "createRuntimeClass": True,
    "runtimeClassName": "12",
    "priorityClassName": "on",
    "podLabels": {"rack": "7"},
    "extraHostVolumes": [{"name": "7", "hostPath": "/opt/7"}],
    "extraVolumeMounts": [{"name": "7", "mountPath": "/opt/7"}],
    "config": {"counters": {"configmap": "7:8"}},
}
"""Values for all objects of the chart, with numbers as names."""

ODD = [
    "7",
    "123",
    "1e3",
    "0x1f",
    "0b1",
    "on",
    "off",
    "no",
    "y",
    "true",
    "null",
    "1-2",
    "2030-01-31",
]

_NAMES = {
    *("name", "namespace", "serviceAccountName", "priorityClassName", "runtimeClassName"),
    *("configMap", "secretName"),
}
_LISTS = {"matchNames", "resourceNames", "values", "users"}


def texts(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values that must be text: names, labels, annotations and selectors."""
    if isinstance(value, dict):
        for inner, below in value.items():
            if key in ("labels", "annotations", "matchLabels", "nodeSelector"):
                yield f"{key}.{inner}", below
            else:
                yield from texts(below, inner)
    elif isinstance(value, list):
        for each in value:
            if key in _LISTS:
                yield key, each
            else:
                yield from texts(each, key)
    elif key in _NAMES:
        yield key, value


def rendered(helm: Helm, release: str, namespace: str, **values: Any) -> Manifests:
    """Render the chart with another release name and namespace."""
    # As JSON, in which text and numbers differ.
    named = [
        word
        for key, value in {"namespaceOverride": namespace, **values}.items()
        for word in ("--set-json", f"{key}={json.dumps(value)}")
    ]
    return Manifests(helm.with_values("template", release, str(CHART), *named, values=ALL))


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_looks_like_another_yaml_type_stays_text(helm: Helm, name: str) -> None:
    overrides: list[Values] = [{}, {"nameOverride": name}, {"fullnameOverride": name}]
    overrides.append({"fullnameOverride": name, "serviceAccount": {"name": name}})
    for values in overrides:
        release = name if not values else "podgpu"
        made = rendered(helm, release, name, **values)
        odd = [found for each in made.objects for found in texts(each) if type(found[1]) is not str]
        assert odd == []
        spaces = {each["metadata"].get("namespace", name) for each in made.objects}
        assert spaces <= {name, "7"}
        assert made.one("Namespace")["metadata"]["name"] == name


def test_a_helm_namespace_that_looks_like_a_boolean_stays_text(helm: Helm) -> None:
    made = Manifests(helm.run("template", "7", str(CHART), "-n", "on"))
    labels = made.one("DaemonSet")["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "7"
    assert {each["metadata"].get("namespace", "on") for each in made.objects} == {"on"}


PAIRS = [
    (("gpu", "prod-podgpu"), ("gpu-prod", "podgpu")),
    (("a", "b-c-podgpu"), ("a-b", "c-podgpu")),
    (("a", "podgpu"), ("b", "podgpu")),
    (("a", "a.podgpu"), ("a-a", "podgpu")),
]


def unspaced(made: Manifests) -> set[tuple[str, str]]:
    kinds = ("ClusterRole", "ClusterRoleBinding", "SecurityContextConstraints")
    return {(kind, each["metadata"]["name"]) for kind in kinds for each in made.all(kind)}


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_two_releases_share_no_cluster_scoped_name(
    helm: Helm, one: tuple[str, str], other: tuple[str, str]
) -> None:
    found = [
        unspaced(rendered(helm, "podgpu", namespace, fullnameOverride=name))
        for namespace, name in (one, other)
    ]
    assert all(len(each) == 5 for each in found)
    assert not found[0] & found[1]


def test_two_releases_have_different_roles_for_the_same_configmap(helm: Helm) -> None:
    names = {
        rendered(helm, "podgpu", namespace, fullnameOverride=name).one("Role")["metadata"]["name"]
        for namespace, name in PAIRS[0]
    }
    assert len(names) == 2


RIGHTS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "SecurityContextConstraints",
}


@pytest.mark.parametrize("values", [{}, {"arguments": ["-c", "5000"]}], ids=str)
@pytest.mark.parametrize(
    "switch", [{"rbac": {"create": False}}, {"kubernetes": {"rbac": {"create": False}}}], ids=str
)
def test_each_rbac_switch_removes_all_roles(helm: Helm, values: Values, switch: Values) -> None:
    more: Values = {"extender": {"enabled": True}, "distribution": "openshift", **values}
    more |= {} if values else source("pods", kind="pods")
    before: set[str] = helm.template(more).kinds() & RIGHTS
    assert before
    assert not helm.template({**more, **switch}).kinds() & RIGHTS
