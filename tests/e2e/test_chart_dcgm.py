"""Values of dcgm-exporter's chart, including TLS and passwords."""

import base64

import bcrypt
import pytest
import yaml

from tests.deploy.places import CHART
from tests.e2e.charts import DCGM, Values
from tests.e2e.dcgm_chart_values import AGES
from tests.e2e.helm import Helm, HelmError


def test_the_chart_creates_a_certificate_and_password_hashes(helm: Helm) -> None:
    made = helm.template(
        {"tlsServerConfig": {"enabled": True}, "basicAuth": {"users": {"prometheus": "s3cret"}}}
    )
    secret = made.one("Secret")
    web = yaml.safe_load(secret["stringData"]["web.yml"])
    hashed = web["basic_auth_users"]["prometheus"].encode()
    assert bcrypt.checkpw(b"s3cret", hashed)
    assert not bcrypt.checkpw(b"secret", hashed)
    assert b"BEGIN CERTIFICATE" in base64.b64decode(secret["data"]["tls.crt"])
    assert str(made.config().http.web_config) == "/etc/podgpu-web/web.yml"
    for probe in ("livenessProbe", "readinessProbe"):
        assert made.container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_an_existing_tls_secret_is_mounted_with_the_web_config(helm: Helm) -> None:
    tls = {
        "enabled": True,
        "existingSecret": "own",
        "clientAuthType": "RequireAndVerifyClientCert",
    }
    made = helm.template({"tlsServerConfig": tls, "arguments": ["-c", "5000"]})
    assert "data" not in made.one("Secret")
    (volume,) = [each for each in made.pod["volumes"] if each["name"] == "web"]
    names = [each["secret"]["name"] for each in volume["projected"]["sources"]]
    assert names == ["podgpu-web", "own"]
    web = yaml.safe_load(made.one("Secret")["stringData"]["web.yml"])["tls_server_config"]
    assert web["client_ca_file"] == "ca.crt"
    assert made.env["DCGM_EXPORTER_WEB_CONFIG_FILE"] == "/etc/podgpu-web/web.yml"
    assert made.container["livenessProbe"]["tcpSocket"] == {"port": "metrics"}


def test_values_of_the_dcgm_exporter_chart_are_accepted(helm: Helm) -> None:
    made = helm.template(DCGM)
    assert made.container["args"] == ["dcgm-exporter", *map(str, DCGM["arguments"])]
    assert made.env["DCGM_EXPORTER_KUBERNETES"] == "true"
    assert made.env["DCGM_EXPORTER_LISTEN"] == ":9400"
    assert made.env["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"] == "true"
    assert made.env["DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"] == "^team$,^app"
    assert made.env["DCGM_EXPORTER_LOG_FORMAT"] == "json"
    context = made.container["securityContext"]
    assert context["capabilities"] == {"add": ["SYS_ADMIN"], "drop": ["ALL"]}
    assert made.pod["nodeSelector"] == {"node": "gpu"}
    assert "affinity" not in made.pod
    assert made.one("ServiceMonitor")["spec"]["endpoints"][0]["honorLabels"] is False
    template = made.one("DaemonSet")["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert all(folder.why for folder in made.host_folders())


@pytest.mark.parametrize("more", [{}, {"dcgmExporter": True}], ids=["unchanged", "dcgmExporter"])
@pytest.mark.parametrize("age", AGES)
def test_values_files_of_all_dcgm_exporter_charts_are_accepted(
    helm: Helm, age: str, more: Values
) -> None:
    made = helm.template({**AGES[age], **more})
    assert made.env["NODE_NAME"] == ""
    dcgm = made.container["args"][0] == "dcgm-exporter"
    assert dcgm is bool(more or AGES[age]["arguments"])
    # If disabled, a config file of dcgm-exporter's chart has no effect on podgpu's configuration.
    assert dcgm or made.config() == helm.template().config()


def test_the_image_digest_is_used_and_the_tag_is_not(helm: Helm) -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    image = {"repository": "registry.example/podgpu", "tag": "1.2.3", "digest": digest}
    made = helm.template({"image": image, "extender": {"enabled": True}})
    (extender,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    assert made.container["image"] == f"registry.example/podgpu@{digest}"
    assert extender["image"] == made.container["image"]


@pytest.mark.parametrize(("given", "token"), [(None, True), (True, True), (False, False)])
def test_the_automount_token_value_is_used(helm: Helm, given: bool | None, token: bool) -> None:
    values: Values = {"serviceAccount": {"automountServiceAccountToken": given}}
    assert helm.template(values).pod["automountServiceAccountToken"] is token


PORTS: list[tuple[Values, int]] = [
    ({"arguments": ["-a", ":9500"]}, 9500),
    ({"arguments": ["--address", "[::]:9500", "-k"]}, 9500),
    ({"arguments": ["-a=:9500"]}, 9500),
    ({"arguments": ["--address=localhost:9500", "-a", ":9501"]}, 9501),
    ({"arguments": ["-k"], "service": {"address": ":9600"}}, 9600),
    ({"extraEnv": [{"name": "DCGM_EXPORTER_LISTEN", "value": ":9700"}]}, 9700),
    (
        {"service": {"address": ":9600"}, "extraEnv": [{"name": "DCGM_EXPORTER_LISTEN"}]},
        9400,
    ),
    (
        {
            "arguments": ["-a", ":9500"],
            "service": {"address": ":9600"},
            "extraEnv": [{"name": "DCGM_EXPORTER_LISTEN", "value": ":9700"}],
        },
        9500,
    ),
]


@pytest.mark.parametrize(("values", "port"), PORTS, ids=[str(each)[:60] for each, _ in PORTS])
def test_the_container_port_is_the_one_that_podgpu_uses(
    helm: Helm, values: Values, port: int
) -> None:
    """Arguments have precedence over variables, and variables over values."""
    made = helm.template({"dcgmExporter": True, "service": {"port": 9500}, **values})
    assert made.container["ports"] == [{"name": "metrics", "containerPort": port}]
    for probe in ("livenessProbe", "readinessProbe"):
        assert made.container[probe]["httpGet"]["port"] == "metrics"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arguments": ["-a", "9500"]}, 'arguments: -a: "9500" has no port'),
        ({"arguments": ["--address=$(HOST):$(PORT)"]}, "arguments: --address: "),
        ({"extraEnv": [{"name": "DCGM_EXPORTER_LISTEN", "value": "x"}]}, "extraEnv: DCGM_"),
        (
            {"extraEnv": [{"name": "DCGM_EXPORTER_LISTEN", "valueFrom": {"fieldRef": {}}}]},
            "extraEnv: DCGM_EXPORTER_LISTEN: ",
        ),
    ],
    ids=str,
)
def test_an_address_without_a_readable_port_is_refused(
    helm: Helm, values: Values, message: str
) -> None:
    with pytest.raises(HelmError) as caught:
        helm.template({"dcgmExporter": True, **values})
    assert message in str(caught.value)
    assert "write it, such as" in str(caught.value)


_FIXED = "exporter-metrics-config-map"
_DEFAULT = (CHART / "files" / "default-counters.csv").read_text()
_OWN = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n"


@pytest.mark.parametrize(
    "listed",
    ["", _OWN, f"   # Indented.\n{_OWN}"],
    ids=["default list", "custom list", "leading blanks"],
)
def test_a_volume_for_counters_gets_the_list_of_this_release(helm: Helm, listed: str) -> None:
    """The name in the values is the same for all releases, so only one release could use it."""
    made = helm.template({**DCGM, "customMetrics": listed})
    assert (
        made.one("ConfigMap", "podgpu-counters")["data"]["metrics"].strip()
        == (listed or _DEFAULT).strip()
    )
    (volume,) = [each for each in made.pod["volumes"] if each["name"] == "exporter-metrics-volume"]
    items = DCGM["extraConfigMapVolumes"][0]["configMap"]["items"]
    assert volume["configMap"] == {"name": "podgpu-counters", "items": items}
    assert _FIXED not in {each["metadata"]["name"] for each in made.all("ConfigMap")}
    paths = [each["mountPath"] for each in made.container["volumeMounts"]]
    assert len(set(paths)) == len(paths)


def test_a_counters_list_for_podgpu_does_not_use_the_dcgm_exporter_volume(helm: Helm) -> None:
    """That volume is only for the path of dcgm-exporter's command line."""
    made = helm.template({**DCGM, "arguments": [], "kubernetes": {}, "customMetrics": _OWN})
    mounts = {each["mountPath"]: each["name"] for each in made.container["volumeMounts"]}
    assert str(made.config().counters.file) == "/etc/podgpu-counters/metrics"
    assert mounts["/etc/podgpu-counters"] == "counters"


ASKED: list[tuple[Values, list[str]]] = [
    ({"arguments": ["-m", f"podgpu:{_FIXED}"]}, [_FIXED]),
    ({"arguments": [f"--configmap-data=podgpu:{_FIXED}"]}, [_FIXED]),
    (
        {
            "dcgmExporter": True,
            "extraEnv": [{"name": "DCGM_EXPORTER_CONFIGMAP_DATA", "value": f"podgpu:{_FIXED}"}],
        },
        [_FIXED],
    ),
    ({"arguments": ["-m", f"podgpu:{_FIXED}"], "namespaceOverride": "gpus"}, []),
    ({"arguments": ["-m", f"monitoring:{_FIXED}"]}, []),
    ({"arguments": ["-m", "podgpu:mine"]}, []),
    # In podgpu's configuration it is a ConfigMap of the user.
    ({"config": {"counters": {"configmap": f"podgpu:{_FIXED}"}}}, []),
]


@pytest.mark.parametrize(("values", "made"), ASKED, ids=[str(each)[:70] for each, _ in ASKED])
def test_the_configmap_that_dcgm_exporter_arguments_name_is_created(
    helm: Helm, values: Values, made: list[str]
) -> None:
    found = [each for each in helm.template(values).all("ConfigMap") if "metrics" in each["data"]]
    assert [each["metadata"]["name"] for each in found] == made
    assert all(each["data"]["metrics"].strip() == _DEFAULT.strip() for each in found)


def test_custom_metrics_replace_the_default_counters_list(helm: Helm) -> None:
    listed = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n"
    old = helm.template({"arguments": ["-c", "5000"], "customMetrics": listed})
    (mount,) = [each for each in old.container["volumeMounts"] if each["name"] == "counters"]
    assert mount["mountPath"] == "/etc/dcgm-exporter/default-counters.csv"
    annotations = old.one("DaemonSet")["spec"]["template"]["metadata"]["annotations"]
    assert "checksum/counters" in annotations, "a file mounted with subPath is not updated in a pod"
    new = helm.template({"customMetrics": listed})
    assert str(new.config().counters.file) == "/etc/podgpu-counters/metrics"
    assert new.one("ConfigMap", "podgpu-counters")["data"]["metrics"] == listed
