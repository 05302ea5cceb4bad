"""Installed on a real cluster: the pod of `helm test`, and the switch for usage.

The cluster has no DNS, so the pod of the test gets the Service's address as an alias.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.manifests import Object
from tests.e2e.charts import Values
from tests.e2e.helm import NAMESPACE, Helm
from tests.e2e.image import Image
from tests.e2e.image_pods import execute
from tests.e2e.installation import installed, prepared_site, values
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.service import proxied
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.fakes.nvml import FakeNvml

SCENE = distinct()
NAME = "podgpu-test"
TLS: Values = {"tlsServerConfig": {"enabled": True}}


@pytest.fixture(scope="module")
def site(loaded: Image, cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with controllers and a GPU label on its node, without podgpu."""
    with prepared_site(cluster):
        yield cluster


def result(site: Cluster, pod: Object, address: str) -> tuple[str, str]:
    """Run the test's pod; return its phase at the end, and its log."""
    host = f"podgpu.{NAMESPACE}.svc"
    aliases = [{"ip": address, "hostnames": [host]}]
    site.api.create({**pod, "spec": {**pod["spec"], "hostAliases": aliases}})
    try:
        wait_until(lambda: phase(site) in ("Succeeded", "Failed"), "the test's end", seconds=60)
        return phase(site), site.pod_log(NAME, "test", NAMESPACE)
    finally:
        site.api.delete("Pod", NAME, NAMESPACE)


def phase(site: Cluster) -> str:
    return str(site.api.get("Pod", NAME, NAMESPACE)["status"].get("phase"))


@pytest.mark.parametrize("more", [{}, TLS], ids=["plain", "TLS"])
def test_the_test_succeeds_beside_a_running_podgpu_and_fails_without(
    site: Cluster, helm: Helm, tmp_path: Path, more: Values
) -> None:
    with installed(site, helm, values(FakeNvml(SCENE, tmp_path), more)) as release:
        (pod,) = helm.with_tests(release.values).all("Pod")
        with proxied(site.api, "podgpu", NAMESPACE) as (address, _):
            ended, log = result(site, pod, address)
        assert ended == "Succeeded", log
        assert site.node in log
        assert f"{len(SCENE.gpus)} GPUs" in log
        # Nothing forwards connections to the Service any more.
        ended, log = result(site, pod, address)
        assert ended == "Failed"
        assert "podgpu" in log


def test_one_switch_keeps_the_usage_of_pods_in_a_file_of_the_node(
    site: Cluster, helm: Helm, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger" / "usage.db"
    switch: Values = {"usage": {"enabled": True, "path": str(ledger)}}
    with installed(site, helm, values(FakeNvml(SCENE, tmp_path), switch)) as release:
        (pod,) = release.pods()
        command = ("podgpu", "usage", "-c", "/etc/podgpu/config.yaml", "--by", "device")

        def report() -> str:
            done = execute(site, pod, *command)
            return done.stdout if done.returncode == 0 else ""

        wait_until(lambda: f"GPU 0 {SCENE.gpus[0].name}" in report(), "the report", seconds=60)
    assert ledger.stat().st_size > 0, "it remains after the uninstallation"
