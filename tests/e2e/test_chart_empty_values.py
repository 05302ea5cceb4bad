"""Empty values: helm removes them, and the chart must use the defaults."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import Object
from tests.deploy.places import CHART
from tests.e2e.charts import DCGM, Values
from tests.e2e.helm import Helm
from tests.e2e.installation import merged

WHOLE: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

NONE = {
    "resources": "the container has no resources",
    "tolerations": "the pod has no tolerations",
    "labels": "no label is set",
    "priorityClassName": "",
    "visibleDevices": "the image decides",
}
"""Values for which empty means none instead of the default."""

ALL: Values = {
    "createNamespace": True,
    "extender": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "tlsServerConfig": {"enabled": True},
}
"""Values for all objects of the chart."""


def mappings(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield (*path, key)
            yield from mappings(value, (*path, key))


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in NONE:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def nested(path: tuple[str, ...], value: Any = None) -> Values:
    return reduce(lambda inner, key: {key: inner}, reversed(path), value)


def made(helm: Helm, values: Values) -> list[Object]:
    """Return the objects without Secrets, which change at each rendering."""
    found = helm.template(values).objects
    return [each for each in found if each["kind"] != "Secret"]


MAPPINGS = [path for path in mappings(WHOLE) if not set(path) & NONE.keys()]


@pytest.mark.parametrize("path", MAPPINGS, ids=".".join)
@pytest.mark.parametrize("under", [{}, DCGM], ids=["podgpu's own", "dcgm-exporter's"])
def test_an_empty_mapping_has_its_defaults(
    helm: Helm, path: tuple[str, ...], under: Values
) -> None:
    kept = {key: value for key, value in under.items() if key != path[0]}
    assert made(helm, {**kept, **nested(path)}) == made(helm, kept)


def test_a_values_file_with_only_empty_mappings_has_the_defaults(helm: Helm) -> None:
    headings = {path[0]: None for path in MAPPINGS}
    assert made(helm, headings) == made(helm, {})


LEAVES = [path for path in leaves(WHOLE) if path[-1] not in NONE]


def test_empty_values_are_the_defaults(helm: Helm) -> None:
    empty = reduce(merged, (nested(path) for path in LEAVES), Values())
    assert made(helm, empty) == made(helm, {})


@pytest.mark.parametrize("heading", sorted({path[0] for path in LEAVES if len(path) > 1}))
def test_empty_values_of_enabled_parts_are_the_defaults(helm: Helm, heading: str) -> None:
    """The values of each part separately, without its switch."""
    inside = [path for path in LEAVES if path[0] == heading and path[-1] != "enabled"]
    empty = reduce(merged, (nested(path) for path in inside), Values())
    assert made(helm, merged(empty, ALL)) == made(helm, ALL)


def holes(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(holes, value.values() if isinstance(value, dict) else value))
    return value is None


SAYING = [path for path in leaves(WHOLE) if reduce(lambda it, key: it[key], path, WHOLE)]
"""Values with a default that is not empty."""


@pytest.mark.parametrize("path", SAYING, ids=".".join)
def test_an_empty_value_renders_no_null(helm: Helm, path: tuple[str, ...]) -> None:
    """No field is null, because the API server's behaviour for null depends on the field."""
    assert not holes(helm.template(merged(ALL, nested(path))).objects)


@pytest.mark.parametrize("name", NONE)
def test_some_empty_values_mean_none(helm: Helm, name: str) -> None:
    empty = nested(("dashboards", name) if name == "labels" else (name,))
    found = helm.template(merged(empty, {"dashboards": {"enabled": True}}))
    assert ("resources" in found.container) is (name != "resources")
    assert ("tolerations" in found.pod) is (name != "tolerations")
    assert ("priorityClassName" in found.pod) is (name != "priorityClassName")
    assert ("NVIDIA_VISIBLE_DEVICES" in found.env) is (name != "visibleDevices")
    boards = found.one("ConfigMap", "podgpu-node")["metadata"]["labels"]
    assert ("grafana_dashboard" in boards) is (name != "labels")
