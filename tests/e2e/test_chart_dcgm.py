"""Values of dcgm-exporter's chart, TLS and passwords among them."""

import base64

import bcrypt
import yaml

from tests.deploy.places import CHART
from tests.e2e.charts import DCGM
from tests.e2e.helm import Helm


def test_a_certificate_and_passwords_are_made(helm: Helm) -> None:
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


def test_a_secret_of_one_s_own_is_mounted_beside_the_web_config(helm: Helm) -> None:
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


def test_values_of_dcgm_exporter_s_chart_are_taken_as_they_are(helm: Helm) -> None:
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
    # The map that a volume of these values asks for is there, with the list that theirs has.
    listed = made.one("ConfigMap", "exporter-metrics-config-map")["data"]["metrics"]
    assert listed.strip() == (CHART / "files" / "default-counters.csv").read_text().strip()
    assert all(folder.why for folder in made.host_folders())


def test_a_list_of_one_s_own_takes_the_default_one_s_place(helm: Helm) -> None:
    listed = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n"
    old = helm.template({"arguments": ["-c", "5000"], "customMetrics": listed})
    (mount,) = [each for each in old.container["volumeMounts"] if each["name"] == "counters"]
    assert mount["mountPath"] == "/etc/dcgm-exporter/default-counters.csv"
    annotations = old.one("DaemonSet")["spec"]["template"]["metadata"]["annotations"]
    assert "checksum/counters" in annotations, "a file mounted by itself never changes in a pod"
    new = helm.template({"customMetrics": listed})
    assert str(new.config().counters.file) == "/etc/podgpu-counters/metrics"
    assert new.one("ConfigMap", "podgpu-counters")["data"]["metrics"] == listed
