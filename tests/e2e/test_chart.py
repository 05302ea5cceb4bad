"""General properties of the rendered chart, for many values."""

import json
import os

import pytest

from tests.deploy.manifests import Manifests
from tests.deploy.places import CHART, PLAIN
from tests.e2e.charts import EVERY
from tests.e2e.helm import Helm

HEAD = """\
# podgpu on every GPU node: set the image to yours, then kubectl apply -f deploy/podgpu.yaml.
# Generated from the chart; see docs/install.md.
"""


@pytest.fixture(scope="session", params=EVERY, ids=[json.dumps(each)[:70] for each in EVERY])
def rendered(request: pytest.FixtureRequest, helm: Helm) -> Manifests:
    return helm.template(request.param)


def test_helm_lint_finds_no_problem(helm: Helm) -> None:
    output = helm.run("lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in output
    assert "WARNING" not in output


def test_the_plain_manifest_is_current(helm: Helm) -> None:
    """`PODGPU_WRITE_GOLDEN=1` regenerates it."""
    made = HEAD + helm.template({}, "--set", "createNamespace=true").text
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        PLAIN.write_text(made, encoding="utf-8")
    assert PLAIN.read_text(encoding="utf-8") == made


# Properties for all values.


def test_the_rendered_configuration_is_valid(rendered: Manifests) -> None:
    if "dcgm-exporter" not in rendered.container["args"]:
        assert rendered.config().sinks


def test_containers_are_unprivileged_without_capabilities(rendered: Manifests) -> None:
    for kind in ("DaemonSet", "Deployment"):
        for made in rendered.all(kind):
            for container in made["spec"]["template"]["spec"]["containers"]:
                context = container["securityContext"]
                assert "privileged" not in context
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert context["readOnlyRootFilesystem"] is True
                assert context["allowPrivilegeEscalation"] is False


def test_each_host_folder_has_a_comment(rendered: Manifests) -> None:
    folders = rendered.host_folders()
    in_pods = sum("hostPath" in volume for volume in rendered.pod["volumes"])
    assert len(folders) == in_pods, "all host folders are found"
    assert all(folder.why for folder in folders)


def test_only_pods_that_read_root_files_run_as_root(rendered: Manifests) -> None:
    context = rendered.container["securityContext"]
    reads = set(rendered.mounts) - {"/opt/podgpu-driver/libnvidia-ml.so.1"}
    assert (context["runAsUser"] == 0) == bool(reads)
    assert context["runAsNonRoot"] is (context["runAsUser"] != 0)


def test_a_token_is_mounted_only_if_there_are_rbac_rules(rendered: Manifests) -> None:
    has_rights = bool(rendered.rules or rendered.all("Role"))
    assert rendered.pod["automountServiceAccountToken"] is has_rights


def test_selectors_and_references_match(rendered: Manifests) -> None:
    daemon = rendered.one("DaemonSet")
    labels = daemon["spec"]["template"]["metadata"]["labels"]
    assert daemon["spec"]["selector"]["matchLabels"].items() <= labels.items()
    served = rendered.one("Service", "podgpu")
    assert served["spec"]["selector"].items() <= labels.items()
    for monitor in rendered.all("ServiceMonitor"):
        chosen = monitor["spec"]["selector"]["matchLabels"]
        assert chosen.items() <= served["metadata"]["labels"].items()
    for binding in rendered.all("ClusterRoleBinding"):
        rendered.one("ClusterRole", binding["roleRef"]["name"])
        rendered.one("ServiceAccount", binding["subjects"][0]["name"])
    assert rendered.pod["serviceAccountName"] == "podgpu"
