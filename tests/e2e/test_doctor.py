"""`podgpu doctor` on a real node: healthy, with one missing permission, and with one fault."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.doctor_runs import LIST, DoctorPodgpu, expired, other_exporter, wait_rights
from tests.e2e.helm import Helm
from tests.e2e.kube import access
from tests.e2e.kube.api import Object
from tests.e2e.kube.apiserver import signing_key
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.processes import free_ports

ACCOUNT = "podgpu-doctor"
BOUND = f"default-{ACCOUNT}"
"""The name of the binding that `access.allow` creates."""

KEPT = ("name", "namespace", "labels")
"""Metadata that the server does not set."""

OF_THE_MACHINE = ("clock", "twins")
"""Checks that may warn on a healthy test machine: its clock may not be synchronized, and podgpus of
other tests may run."""

TEXT = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n"
Verb = tuple[str, str, str]
"""Verb, group, resource."""


@dataclass(frozen=True, slots=True)
class DoctorSetup:
    """A node with a device plugin and a pod, and a service account with the chart's rules."""

    kube: Cluster
    podgpu: DoctorPodgpu
    plugin: DevicePlugin
    kubeconfig: Path
    rules: list[Object]

    def allow(self, without: Verb | None = None) -> None:
        """Grant the chart's rules except one, and wait until they are in force."""
        less = [
            {**rule, "verbs": [verb for verb in rule["verbs"] if key(rule, verb) != without]}
            for rule in self.rules
        ]
        # The API server refuses a rule without a verb.
        access.set_rules(self.kube.api, ACCOUNT, [rule for rule in less if rule["verbs"]])
        self.wait(without)

    def wait(self, without: Verb | None = None, *, listed: bool = True) -> None:
        """Wait until the permissions are in force: the chart's except one, and that for the
        counters list."""
        rights = {each: each != without for each in verbs(self.rules)}
        wait_rights(self.kube, ACCOUNT, rights, listed=listed)


def key(rule: Object, verb: str) -> Verb:
    return verb, rule["apiGroups"][0], rule["resources"][0]


def verbs(rules: list[Object]) -> list[Verb]:
    return [key(rule, verb) for rule in rules for verb in rule["verbs"]]


@pytest.fixture(scope="module")
def prepared(
    cluster: Cluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DoctorSetup]:
    folder = tmp_path_factory.mktemp("doctor")
    (port,) = free_ports(1)
    kubeconfig = folder / "kubeconfig.yaml"
    podgpu = DoctorPodgpu(cluster, folder, kubeconfig, port)
    api, chart = cluster.api, helm.template(podgpu.values())
    namespace, _, name = LIST.partition(":")
    access.service_account(api, ACCOUNT, chart.rules)
    access.allow(api, ACCOUNT, chart.one("Role")["rules"], namespace)
    api.create(
        {
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"metrics": TEXT},
        }
    )
    access.kubeconfig(kubeconfig, api, token=access.token(api, ACCOUNT, seconds=3600))
    plugin = cluster.plugin(["GPU-0", "GPU-1"])
    cluster.run(gpu_pod("train-0", namespace="ml"))
    made = DoctorSetup(cluster, podgpu, plugin, kubeconfig, chart.rules)
    made.allow()
    try:
        yield made
    finally:
        api.delete("ConfigMap", name, namespace)
        cluster.tidy()


def test_a_healthy_node_has_no_findings(prepared: DoctorSetup) -> None:
    answer = prepared.podgpu.diagnose()
    assert answer.bad(*OF_THE_MACHINE) == []
    assert answer.status == (1 if answer.bad() else 0)
    well = {each.check for each in answer.findings if each.verdict == "ok"}
    assert {
        "config", "counters", "node.name", "http.port", "podresources.socket",
        "podresources.version", "podresources.devices", "podresources.sharing", "pods.server",
        "pods.rbac", "checkpoint.file", "nri.socket", "node.rbac", "pods.patch",
    } <= well  # fmt: skip


RIGHTS: dict[Verb, tuple[str, str]] = {
    ("list", "", "pods"): ("pods.rbac", "failure"),
    ("watch", "", "pods"): ("pods.rbac", "failure"),
    ("list", "resource.k8s.io", "resourceslices"): ("pods.rbac", "warning"),
    ("watch", "resource.k8s.io", "resourceslices"): ("pods.rbac", "warning"),
    ("get", "resource.k8s.io", "resourceclaims"): ("pods.rbac", "warning"),
    ("get", "", "nodes"): ("node.rbac", "failure"),
    ("patch", "", "nodes"): ("node.rbac", "failure"),
    ("get", "", "pods"): ("pods.patch", "failure"),
    ("patch", "", "pods"): ("pods.patch", "failure"),
}
"""Check and verdict by missing permission."""


def test_the_table_contains_every_rbac_rule_of_the_chart(prepared: DoctorSetup) -> None:
    assert sorted(verbs(prepared.rules)) == sorted(RIGHTS)


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: " ".join(filter(None, right)))
def test_a_missing_permission_causes_one_finding(prepared: DoctorSetup, right: Verb) -> None:
    check, verdict = RIGHTS[right]
    verb, group, resource = right
    prepared.allow(without=right)
    try:
        (found,) = prepared.podgpu.diagnose().bad(*OF_THE_MACHINE)
    finally:
        prepared.allow()
    assert (found.check, found.verdict) == (check, verdict)
    assert found.saw.startswith(f"may not {verb} {resource}")
    assert f'apiGroups ["{group}"], resources ["{resource}"], verbs [{verb}]' in found.repair


def test_a_missing_permission_for_the_counters_list_is_reported(prepared: DoctorSetup) -> None:
    namespace, _, name = LIST.partition(":")
    binding = prepared.kube.api.get("RoleBinding", BOUND, namespace)
    prepared.kube.api.delete("RoleBinding", BOUND, namespace)
    prepared.wait(listed=False)
    try:
        (found,) = prepared.podgpu.diagnose().bad(*OF_THE_MACHINE)
    finally:
        binding["metadata"] = {key: binding["metadata"][key] for key in KEPT}
        prepared.kube.api.create(binding)
        prepared.wait()
    assert (found.check, found.verdict) == ("counters", "warning")
    assert "403" in found.saw
    assert f"a Role in {namespace} with verbs [get] on configmaps" in found.repair
    assert f'resourceNames ["{name}"]' in found.repair


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and the expected findings.

    Attributes:
        make: context manager that causes the fault.
        findings: by check: verdict, and parts of the observation and of the fix.
        change: changes of the configuration file.
    """

    findings: dict[str, tuple[str, str, str]]
    make: Callable[[DoctorSetup], AbstractContextManager[Any]] = lambda _: nullcontext()
    change: dict[str, Any] = field(default_factory=dict)


@contextmanager
def old_token(prepared: DoctorSetup) -> Iterator[None]:
    api, before = prepared.kube.api, prepared.kubeconfig.read_text()
    token = expired(access.token(api, ACCOUNT, seconds=3600), signing_key())
    access.kubeconfig(prepared.kubeconfig, api, token=token)
    try:
        yield
    finally:
        prepared.kubeconfig.write_text(before)
    # Assert that the token was refused because it had expired.
    assert "token has expired" in prepared.kube.apiserver.output()


@contextmanager
def no_plugin(prepared: DoctorSetup) -> Iterator[None]:
    prepared.plugin.stop()
    prepared.kube.wait_allocatable(prepared.plugin.resource, 0)
    try:
        yield
    finally:
        prepared.plugin.start()
    prepared.kube.wait_allocatable(prepared.plugin.resource, len(prepared.plugin.healthy))


@contextmanager
def frozen_kubelet(prepared: DoctorSetup) -> Iterator[None]:
    prepared.kube.kubelet.freeze()
    try:
        yield
    finally:
        prepared.kube.kubelet.thaw()


@contextmanager
def no_kubelet(prepared: DoctorSetup) -> Iterator[None]:
    prepared.kube.kubelet.stop()
    try:
        yield
    finally:
        prepared.kube.kubelet.start()
    # Plugins register again.
    prepared.kube.wait_allocatable(prepared.plugin.resource, len(prepared.plugin.healthy))


@contextmanager
def no_server(prepared: DoctorSetup) -> Iterator[None]:
    prepared.kube.apiserver.stop()
    try:
        yield
    finally:
        prepared.kube.apiserver.start()
        # Without a restart it may take a minute to reconnect to the API server.
        prepared.kube.kubelet.restart()


FAULTS = {
    "the node has another name": Fault(
        {"node.name": ("failure", "no Node is named elsewhere", "spec.nodeName")},
        change={"node": "elsewhere"},
    ),
    "another exporter has the port": Fault(
        {"http.port": ("failure", "dcgm-exporter", "another listen")},
        make=lambda prepared: other_exporter(prepared.podgpu.port),
    ),
    "the token has expired": Fault(
        {
            "pods.server": ("failure", "401", "renew the token"),
            "node.rbac": ("failure", "401", "renew the token"),
            "pods.patch": ("failure", "401", "renew the token"),
            "counters": ("warning", "401", "renew the token"),
        },
        make=old_token,
    ),
    "the device plugin is gone": Fault(
        {"podresources.devices": ("warning", "no device plugin", "device plugin's pod")},
        make=no_plugin,
    ),
    "the kubelet doesn't answer": Fault(
        {"podresources.socket": ("failure", "the kubelet", "the kubelet")},
        make=frozen_kubelet,
    ),
    "the kubelet is down": Fault(
        {"podresources.socket": ("failure", "the kubelet is unreachable", "start the kubelet")},
        make=no_kubelet,
    ),
    "the API server is down": Fault(
        {
            "pods.server": ("failure", "Connect call failed", "the address is correct"),
            "node.rbac": ("failure", "Connect call failed", "the address is correct"),
            "pods.patch": ("failure", "Connect call failed", "the address is correct"),
            "counters": ("warning", "Connect call failed", "the address is correct"),
        },
        make=no_server,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_causes_exactly_its_findings(prepared: DoctorSetup, fault: str) -> None:
    wrong = FAULTS[fault]
    with wrong.make(prepared):
        answer = prepared.podgpu.diagnose(wrong.change)
    found_by_check = {each.check: each for each in answer.bad(*OF_THE_MACHINE)}
    assert found_by_check.keys() == wrong.findings.keys(), list(map(str, answer.findings))
    for check, (verdict, saw, repair) in wrong.findings.items():
        found = found_by_check[check]
        assert found.verdict == verdict, str(found)
        assert saw in found.saw, str(found)
        assert repair in found.repair, str(found)
    assert answer.status == (
        2 if "failure" in {each.verdict for each in found_by_check.values()} else 1
    )
