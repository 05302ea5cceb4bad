"""The notes that helm prints after the installation."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.deploy.places import CHART
from tests.e2e.charts import EVERY, Values, sink, source
from tests.e2e.helm import Helm

_NOTES_TEMPLATE = """\
kind: Notes
text: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}
"""


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with its notes as an additional object, because helm prints them only at an
    install."""
    made = tmp_path_factory.mktemp("notes") / "podgpu"
    shutil.copytree(CHART, made)
    (made / "templates" / "notes.yaml").write_text(_NOTES_TEMPLATE)
    return made


def notes(helm: Helm, chart: Path, values: Values) -> str:
    text = helm.with_values("template", "podgpu", str(chart), values=values)
    (found,) = [
        each["text"] for each in yaml.safe_load_all(text) if each and each["kind"] == "Notes"
    ]
    return str(found)


LABEL = "kubectl label node NODE nvidia.com/gpu.present=true"
COSTS = "permanently"
DISABLED = "prometheusRule.disabled"


def test_the_notes_recommend_labels_before_other_fixes(helm: Helm, chart: Path) -> None:
    """The notes also describe the cost of running on every node."""
    found = notes(helm, chart, {})
    assert 0 < found.index("0 desired") < found.index(LABEL) < found.index("gpuNodesOnly=false")
    assert found.index("gpuNodesOnly=false") < found.index(COSTS)
    page = (CHART.parents[1] / "docs" / "install.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| 0 pods desired")]
    assert row.index(LABEL) < row.index("nodeSelector") < row.index("gpuNodesOnly=false")
    assert "PodgpuNodeWithoutGpu" in row


def test_the_notes_say_that_debug_dumps_have_no_effect(helm: Helm, chart: Path) -> None:
    text = "debugDump has no effect: podgpu has no dumps. `podgpu record` writes"
    assert text in notes(helm, chart, {"debugDump": {"enabled": True}})
    assert "debugDump" not in notes(helm, chart, {})


def test_the_notes_mention_alerts_of_nodes_without_gpus(helm: Helm, chart: Path) -> None:
    everywhere = notes(helm, chart, {"gpuNodesOnly": False})
    for word in ("PodgpuNodeWithoutGpu", "PodgpuSourceDown", DISABLED, COSTS):
        assert word in everywhere
    for values in (
        {"gpuNodesOnly": False, "nodeSelector": {"a": "b"}},
        {"nodeSelector": {"a": ""}},
    ):
        chosen = notes(helm, chart, values)
        assert "0 desired" not in chosen
        assert DISABLED not in chosen


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ({}, "curl -s http://localhost:9400/metrics"),
        (sink("metrics", path="/gpu"), "curl -s http://localhost:9400/gpu"),
        ({"service": {"port": 80}}, "curl -s http://localhost:80/metrics"),
        ({"tlsServerConfig": {"enabled": True}}, "curl -s -k https://localhost:9400/metrics"),
        (
            {
                "tlsServerConfig": {
                    "enabled": True,
                    "existingSecret": "own",
                    "clientAuthType": "RequireAndVerifyClientCert",
                },
                "serviceMonitor": {"enabled": False},
            },
            "curl -s --cert CLIENT.crt --key CLIENT.key -k https://localhost:9400/metrics",
        ),
        ({"basicAuth": {"users": {"b": "1", "c": "2"}}}, "-s -u b http://localhost:9400/metrics"),
    ],
    ids=str,
)
def test_the_notes_show_the_command_for_the_metrics_page(
    helm: Helm, chart: Path, values: Values, asked: str
) -> None:
    assert asked in notes(helm, chart, values)


@pytest.mark.parametrize("values", EVERY, ids=lambda values: str(values)[:60])
def test_the_notes_separate_port_forward_from_the_request(
    helm: Helm, chart: Path, values: Values
) -> None:
    lines = notes(helm, chart, values).splitlines()
    assert any("port-forward" in line for line in lines)
    assert all("&" not in line and "curl" not in line for line in lines if "port-forward" in line)


UNPULLABLE = "has no registry"


@pytest.mark.parametrize(
    ("image", "noted"),
    [
        ({}, True),
        ({"digest": f"sha256:{'0' * 64}"}, True),
        ({"repository": "registry.example/podgpu"}, False),
        ({"repository": "localhost:5000/podgpu"}, False),
        ({"repository": "team/podgpu"}, False),
        ({"pullPolicy": "Never"}, False),
    ],
    ids=str,
)
def test_the_notes_say_first_that_an_image_without_a_registry_cannot_be_pulled(
    helm: Helm, chart: Path, image: Values, noted: bool
) -> None:
    found = notes(helm, chart, {"image": image})
    assert (UNPULLABLE in found) is noted
    if noted:
        assert found.index(UNPULLABLE) < found.index("--set image.repository=REGISTRY/podgpu")
        assert found.index("--set image.repository") < found.index("The number of nodes")


def test_the_notes_show_the_report_of_usage(helm: Helm, chart: Path) -> None:
    command = "-- podgpu usage -c /etc/podgpu/config.yaml"
    assert command in notes(helm, chart, {"usage": {"enabled": True}})
    assert command not in notes(helm, chart, {})
    assert "usage.enabled=true" in notes(helm, chart, {})


HIDDEN = "hostPID=true"
UNUSED: list[Values] = [
    {"hostPID": True},
    {"usage": {"enabled": True}},
    source("gpus", usage=False),
    source("gpus", processes=False),
    {"arguments": ["-c", "5000"]},
    {"arguments": ["-k", "--kubernetes-virtual-gpus=false"]},
    {"arguments": ["-k", "--kubernetes-virtual-gpus"], "hostPID": True},
]
VIRTUAL: list[Values] = [
    {"arguments": ["-k", "--kubernetes-virtual-gpus"]},
    {"dcgmExporter": True, "extraEnv": [{"name": "KUBERNETES_VIRTUAL_GPUS", "value": "true"}]},
]


def test_the_notes_explain_what_is_unattributed_without_host_pid(helm: Helm, chart: Path) -> None:
    found = notes(helm, chart, {})
    assert found.index("unattributed") < found.index(HIDDEN)
    for values in UNUSED:
        assert HIDDEN not in notes(helm, chart, values), values


@pytest.mark.parametrize("values", VIRTUAL, ids=["argument", "variable"])
def test_the_notes_say_that_virtual_gpus_need_host_pid(
    helm: Helm, chart: Path, values: Values
) -> None:
    found = notes(helm, chart, values)
    assert found.index("DCGM_FI_DEV_FB_USED") < found.index(HIDDEN)


def test_the_notes_say_that_the_kernel_log_needs_privileges(helm: Helm, chart: Path) -> None:
    log = source("log", kind="kernel")
    assert "securityContext.privileged=true" in notes(helm, chart, log)
    assert "source log reads the kernel log" in notes(helm, chart, log)
    privileged: Values = {**log, "securityContext": {"privileged": True}}
    for values in ({}, privileged):
        assert "privileged" not in notes(helm, chart, values)
