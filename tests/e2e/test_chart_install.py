"""A real API server accepts the rendered objects; helm installs, upgrades and removes them."""

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import Manifests, Object
from tests.deploy.places import CHART, PLAIN
from tests.e2e.charts import DCGM, EVERY
from tests.e2e.helm import NAMESPACE, Helm
from tests.e2e.kube import access
from tests.e2e.kube.api import Api, ApiError
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.processes import wait_until

_FOREIGN = {
    # Minimal definitions of kinds of the Prometheus operator and OpenShift.
    "ServiceMonitor": ("monitoring.coreos.com", "Namespaced"),
    "PodMonitor": ("monitoring.coreos.com", "Namespaced"),
    "PrometheusRule": ("monitoring.coreos.com", "Namespaced"),
    "SecurityContextConstraints": ("security.openshift.io", "Cluster"),
}


def plural(kind: str) -> str:
    if kind.endswith("s"):
        return kind.lower() if kind == "SecurityContextConstraints" else f"{kind.lower()}es"
    return f"{kind.lower().removesuffix('y')}ies" if kind.endswith("y") else f"{kind.lower()}s"


def definition(kind: str) -> Object:
    group, scope = _FOREIGN[kind]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural(kind)}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural(kind), "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }


def where(made: Object) -> str:
    version = made["apiVersion"]
    namespace = made["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}{within}/{plural(made['kind'])}"


def tried(api: Api, made: Object) -> None:
    """Validate an object on the server without storing it; unknown fields are errors."""
    api.request("POST", f"{where(made)}?dryRun=All&fieldValidation=Strict", made)


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Api]:
    """The API server with the foreign kinds and the namespaces of the tests."""
    api = cluster.api
    for name in (NAMESPACE, "monitoring"):
        access.add_namespace(api, name)
    for kind in _FOREIGN:
        api.request("POST", DEFINITIONS, definition(kind))
    try:
        wait_until(lambda: all(map(partial(served, api), _FOREIGN)), "the kinds are served")
        yield api
    finally:
        for kind in _FOREIGN:
            api.request("DELETE", f"{DEFINITIONS}/{definition(kind)['metadata']['name']}")


def served(api: Api, kind: str) -> bool:
    try:
        api.request("GET", f"/apis/{_FOREIGN[kind][0]}/v1/{plural(kind)}")
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("values", [*EVERY, DCGM], ids=lambda it: json.dumps(it)[:70])
def test_the_api_server_accepts_every_object(
    server: Api, helm: Helm, values: dict[str, Any]
) -> None:
    for made in helm.with_tests(values).objects:
        if made["kind"] == "Namespace":
            continue  # it exists
        tried(server, made)


def test_the_api_server_rejects_an_unknown_field(server: Api) -> None:
    """Otherwise the test above would prove nothing."""
    (service,) = Manifests(PLAIN.read_text(encoding="utf-8")).all("Service")
    service["spec"]["prots"] = service["spec"].pop("ports")
    with pytest.raises(ApiError, match="prots"):
        tried(server, service)


def everything(api: Api) -> set[str]:
    """Return all existing objects of kinds that the chart can create."""
    kinds = {
        "v1": "ConfigMap Secret Service ServiceAccount ResourceQuota",
        "apps/v1": "DaemonSet Deployment",
        "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding Role RoleBinding",
        "networking.k8s.io/v1": "NetworkPolicy",
        "monitoring.coreos.com/v1": "ServiceMonitor PodMonitor PrometheusRule",
        "security.openshift.io/v1": "SecurityContextConstraints",
    }
    return {
        f"{kind} {each['metadata'].get('namespace')}/{each['metadata']['name']}"
        for version, names in kinds.items()
        for kind in names.split()
        for each in api.request(
            "GET", where({"apiVersion": version, "kind": kind, "metadata": {}})
        )["items"]
    }


def test_install_upgrade_and_uninstall_leave_no_object(
    server: Api, helm: Helm, cluster: Cluster
) -> None:
    here = helm.against(cluster.admin_kubeconfig)
    before = everything(server)
    values: dict[str, Any] = {
        "distribution": "openshift",
        "extender": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "criticalQuota": True,
        "tlsServerConfig": {"enabled": True},
        "basicAuth": {"users": {"prometheus": "secret"}},
    }
    output = here.with_values("install", "podgpu", str(CHART), values=values)
    # Hints for an installation that does not run.
    assert "kubectl label node NODE nvidia.com/gpu.present=true" in output
    assert "podgpu doctor -c /etc/podgpu/config.yaml" in output
    assert "runtimeClassName=nvidia" in output
    made = everything(server) - before
    # The cluster has these kinds, so they are created by default.
    assert f"ServiceMonitor {NAMESPACE}/podgpu" in made
    assert f"PrometheusRule {NAMESPACE}/podgpu" in made

    def certificate() -> str:
        found: str = server.get("Secret", "podgpu-web", NAMESPACE)["data"]["tls.crt"]
        return found

    first = certificate()
    here.with_values(
        "upgrade", "podgpu", str(CHART), values={**values, "preset": "gpus", "hostPID": True}
    )
    assert certificate() == first, "an upgrade keeps the certificate"
    daemon = server.request("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/podgpu")
    assert daemon["spec"]["template"]["spec"]["hostPID"] is True
    assert f"ClusterRole None/{NAMESPACE}.podgpu" not in everything(server)
    here.run("uninstall", "podgpu", "-n", NAMESPACE)
    assert everything(server) == before


_GPU = "GPU-00000000-0000-4000-8000-000000000000"
_CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
"""


def test_root_without_capabilities_can_use_the_sockets_and_the_checkpoint(kube: Cluster) -> None:
    """Membership in root's group is not sufficient, because only the owner can write to the
    sockets."""
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    sockets = [str(kube.pod_resources_socket), str(kube.nri_socket)]
    ask = [sys.executable, "-c", _CONNECT, *sockets]
    assert subprocess.run([*bare, *ask], check=False).returncode == 0
    for path in sockets:
        assert not stat.S_IMODE(Path(path).stat().st_mode) & 0o022, (
            "the group cannot write to the socket"
        )
        alone = [*bare, "--reuid=65532", "--regid=0", "--clear-groups"]
        refused = subprocess.run([*alone, *ask[:3], path], capture_output=True, check=False)
        assert b"PermissionError" in refused.stderr
    kube.plugin([_GPU])
    kube.run(gpu_pod("train-0"))
    mode = kube.checkpoint.stat()
    assert (mode.st_uid, stat.S_IMODE(mode.st_mode)) == (0, 0o600)
    read = [*bare, sys.executable, "-c", "import sys; open(sys.argv[1]).read()"]
    assert subprocess.run([*read, str(kube.checkpoint)], check=False).returncode == 0
