"""Values files of users for dcgm-exporter's chart work with podgpu's chart, or say what to do.

The files in `tests/podgpu/cli/users/values` have the keys and values of files in public
repositories, with podgpu's image and other comments.
"""

from pathlib import Path

import pytest
import yaml

from tests.e2e.helm import Helm, HelmError

FILES = Path(__file__).parents[1] / "podgpu" / "cli" / "users" / "values"
LIST = "/etc/dcgm-exporter/dcp-metrics-included.csv"

ARGUMENTS: dict[str, list[str]] = {
    "agent": ["-m", "default:agent-counters"],
    "device-names": ["--kubernetes-gpu-id-type", "device-name"],
    "relabelings": [],
    "resources": [],
    "short": ["-f", LIST],
}
"""Arguments in the file. Without arguments, podgpu runs with its own configuration, unless
`dcgmExporter` is set."""

REFUSED = {"operator": "With the operator, set its repository, image and version to podgpu's image"}


def values(name: str) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((FILES / f"{name}.yaml").read_text())
    return loaded


def test_there_is_a_row_for_each_file() -> None:
    assert {file.stem for file in FILES.iterdir()} == {*ARGUMENTS, *REFUSED}


@pytest.mark.parametrize("more", [{}, {"dcgmExporter": True}], ids=["unchanged", "dcgmExporter"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_values_file_is_accepted(helm: Helm, name: str, more: dict[str, object]) -> None:
    made = helm.template({**values(name), **more})
    asked = ARGUMENTS[name]
    if asked or more:
        assert made.container["args"] == ["dcgm-exporter", *asked]
        assert made.env["DCGM_EXPORTER_KUBERNETES"] == "true"
    else:
        assert made.container["args"][0] == "run"
        assert {source.kind for source in made.config().sources.values()} >= {"nvml"}
    assert made.container["image"].startswith("registry.example/podgpu:") is (name != "agent")


def test_the_scrape_is_as_the_file_says(helm: Helm) -> None:
    relabelled = helm.template(values("relabelings")).one("ServiceMonitor")["spec"]["endpoints"][0]
    assert (relabelled["interval"], relabelled["scrapeTimeout"]) == ("30s", "25s")
    assert relabelled["honorLabels"] is False
    # The chart puts its own rule for the node first.
    targets = [rule["targetLabel"] for rule in relabelled["relabelings"]]
    assert targets[-2:] == ["node", "Hostname"]
    often = helm.template(values("short")).one("ServiceMonitor")["spec"]["endpoints"][0]
    assert often["interval"] == "3s"
    for name in ("agent", "device-names"):
        assert "ServiceMonitor" not in helm.template(values(name)).kinds()


def test_pods_are_placed_and_allowed_as_the_file_says(helm: Helm) -> None:
    made = helm.template(values("device-names"))
    assert made.container["securityContext"]["privileged"] is True
    assert [each["key"] for each in made.pod["tolerations"]] == ["nvidia.com/gpu", "sku"]
    assert made.pod["nodeSelector"] == {"feature.node.kubernetes.io/pci-10de.present": "true"}
    assert helm.template(values("short")).pod["runtimeClassName"] == "nvidia"
    assert helm.template(values("relabelings")).pod["priorityClassName"] == "system-node-critical"
    limits = helm.template(values("resources")).container["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == 0
    annotations = helm.template(values("agent")).one("DaemonSet")["spec"]["template"]["metadata"]
    assert "%%host%%:9400" in annotations["annotations"]["ad.example.com/exporter.checks"]


@pytest.mark.parametrize("name", REFUSED)
def test_values_of_another_chart_are_refused_with_the_fix(helm: Helm, name: str) -> None:
    with pytest.raises(HelmError) as caught:
        helm.template(values(name))
    assert REFUSED[name] in str(caught.value)
