"""Values that users have for dcgm-exporter's chart: what the chart makes of each."""

import pytest
import yaml

from tests.deploy.manifests import Manifests
from tests.e2e.charts import Values
from tests.e2e.helm import Helm, HelmError

_MONITORED: Values = {"enabled": True}
_DATA = "version: 1\nmetrics: {file: /etc/dcgm-exporter/dcp-metrics-included.csv}\n"


def monitored(helm: Helm, **values: object) -> Manifests:
    return helm.template({"serviceMonitor": {**_MONITORED, **values}})


MONITORS: list[tuple[Values, Values]] = [
    ({"namespace": "monitoring"}, {"metadata": {"namespace": "monitoring"}}),
    ({"namespace": ""}, {"metadata": {"namespace": "podgpu"}}),
    ({"annotations": {"a": "b"}}, {"metadata": {"annotations": {"a": "b"}}}),
    ({"attachMetadata": {"node": True}}, {"spec": {"attachMetadata": {"node": True}}}),
    ({"attachMetadata": {}}, {"spec": {"attachMetadata": None}}),
    ({"jobLabel": "app"}, {"spec": {"jobLabel": "app"}}),
    ({"targetLabels": ["team"]}, {"spec": {"targetLabels": ["team"]}}),
    ({"podTargetLabels": ["team"]}, {"spec": {"podTargetLabels": ["team"]}}),
    *(
        case
        for name in (
            *("sampleLimit", "targetLimit"),
            *("labelLimit", "labelNameLengthLimit", "labelValueLengthLimit"),
        )
        for case in (
            # As a float, as helm reads numbers.
            ({name: 12345678}, {"spec": {name: 12345678}}),
            ({name: 0}, {"spec": {name: None}}),
        )
    ),
]


@pytest.mark.parametrize(("values", "expected"), MONITORS, ids=[str(each) for each, _ in MONITORS])
@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_values_of_the_monitor_are_in_the_monitor(
    helm: Helm, kind: str, values: Values, expected: Values
) -> None:
    pods = kind == "PodMonitor"
    made = helm.template(
        {"serviceMonitor": {**_MONITORED, **values}, "podMonitor": {"enabled": pods}}
    ).one(kind)
    for part, keys in expected.items():
        for key, value in keys.items():
            # A PodMonitor has no Service with labels.
            wanted = None if pods and key == "targetLabels" else value
            assert made[part].get(key) == wanted
    assert made["spec"]["namespaceSelector"] == {"matchNames": ["podgpu"]}


def test_prometheus_can_scrape_through_a_proxy(helm: Helm) -> None:
    (endpoint,) = monitored(helm).one("ServiceMonitor")["spec"]["endpoints"]
    assert "proxyUrl" not in endpoint
    proxy = "http://proxy:3128"
    (endpoint,) = monitored(helm, proxyUrl=proxy).one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["proxyUrl"] == proxy


def test_the_password_of_prometheus_is_in_the_namespace_of_the_monitor(helm: Helm) -> None:
    made = helm.template(
        {
            "serviceMonitor": {**_MONITORED, "namespace": "monitoring"},
            "basicAuth": {"users": {"prometheus": "s3cret"}},
        }
    )
    places = {
        each["metadata"]["name"]: each["metadata"]["namespace"] for each in made.all("Secret")
    }
    assert places == {"podgpu-web": "podgpu", "podgpu-scrape": "monitoring"}


def test_a_certificate_in_another_namespace_than_the_monitor_is_an_error(helm: Helm) -> None:
    values: Values = {
        "serviceMonitor": {**_MONITORED, "namespace": "monitoring"},
        "tlsServerConfig": {"enabled": True},
    }
    with pytest.raises(HelmError) as caught:
        helm.template(values)
    assert "serviceMonitor.tlsConfig: the certificate's Secret is not in the" in str(caught.value)
    own = {"insecureSkipVerify": True}
    values["serviceMonitor"]["tlsConfig"] = own
    endpoint = helm.template(values).one("ServiceMonitor")["spec"]["endpoints"][0]
    assert endpoint["tlsConfig"] == own


@pytest.mark.parametrize(
    ("config", "name", "key", "path"),
    [
        (
            {"data": _DATA},
            "podgpu-config-file",
            "config.yaml",
            "/etc/dcgm-exporter/config.yaml",
        ),
        (
            {"data": _DATA, "create": True, "name": "own", "key": "a.yaml", "mountPath": "/c.yaml"},
            "own",
            "a.yaml",
            "/c.yaml",
        ),
        (
            {"create": False, "name": "existing"},
            "existing",
            "config.yaml",
            "/etc/dcgm-exporter/config.yaml",
        ),
    ],
    ids=["created", "created with other names", "existing"],
)
def test_the_yaml_file_of_dcgm_exporter_is_mounted_and_used(
    helm: Helm, config: Values, name: str, key: str, path: str
) -> None:
    made = helm.template({"config": {"enabled": True, **config}})
    assert made.container["args"] == ["dcgm-exporter"]
    assert made.env["DCGM_EXPORTER_CONFIG_FILE"] == path
    (mount,) = [each for each in made.container["volumeMounts"] if each["name"] == "config-file"]
    assert (mount["mountPath"], mount["subPath"]) == (path, key)
    (volume,) = [each for each in made.pod["volumes"] if each["name"] == "config-file"]
    assert volume["configMap"]["name"] == name
    created = [each for each in made.all("ConfigMap") if each["metadata"]["name"] == name]
    assert [each["data"] for each in created] == ([{key: _DATA}] if "data" in config else [])


def test_without_data_the_yaml_file_is_the_default_of_dcgm_exporters_chart(helm: Helm) -> None:
    made = helm.template({"config": {"enabled": True}}).one("ConfigMap", "podgpu-config-file")
    read = yaml.safe_load(made["data"]["config.yaml"])
    assert read == {
        "version": 1,
        "metrics": {"file": "/etc/dcgm-exporter/default-counters.csv"},
    }


def test_a_changed_yaml_file_restarts_the_pods(helm: Helm) -> None:
    """dcgm-exporter reads it only at its start, and so does podgpu."""

    def annotations(data: str) -> Values:
        made = helm.template({"config": {"enabled": True, "data": data}})
        found: Values = made.one("DaemonSet")["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations(_DATA) == annotations(_DATA)
    assert annotations(_DATA) != annotations("version: 1\n")


def test_a_variable_of_the_user_precedes_the_one_of_the_chart(helm: Helm) -> None:
    variable = {"name": "DCGM_EXPORTER_CONFIG_FILE", "value": "/other.yaml"}
    made = helm.template({"config": {"enabled": True}, "extraEnv": [variable]})
    assert made.env["DCGM_EXPORTER_CONFIG_FILE"] == "/other.yaml"


def test_debug_dumps_have_no_effect(helm: Helm) -> None:
    assert helm.template({"debugDump": {"enabled": True}}).text == helm.template().text
