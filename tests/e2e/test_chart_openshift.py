"""On OpenShift, the chart's SecurityContextConstraints admit its pods and allow nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.manifests import Manifests, Object
from tests.e2e.charts import DCGM, EVERY, Values
from tests.e2e.helm import Helm

WHERE: Values = {"distribution": "openshift"}


def volume(**kind: Any) -> Values:
    return {"extraConfigMapVolumes": [{"name": "more", **kind}]}


def container(**context: Any) -> Values:
    return {"securityContext": context}


def before(**context: Any) -> Values:
    return {"initContainers": [{"name": "first", "image": "x", "securityContext": context}]}


CAPABLE = {"add": ["SYS_ADMIN", "NET_ADMIN"]}

MORE: list[Values] = [
    DCGM,
    container(privileged=True),
    {"preset": "gpus", **container(privileged=True)},
    container(capabilities=CAPABLE),
    container(capabilities=None),
    container(capabilities={"drop": None}),
    container(readOnlyRootFilesystem=False),
    container(allowPrivilegeEscalation=True),
    container(seccompProfile={"type": "Unconfined"}),
    container(seccompProfile={"type": "Localhost", "localhostProfile": "gpu.json"}),
    {"podSecurityContext": {"seccompProfile": {"type": "Unconfined"}}},
    before(privileged=True),
    before(capabilities=CAPABLE),
    before(readOnlyRootFilesystem=True),
    {"initContainers": [{"name": "first", "image": "x"}]},
    {"preset": "gpus", **volume(hostPath={"path": "/opt/bin"})},
    {"preset": "gpus", "extraHostVolumes": [{"name": "bin", "hostPath": "/opt/bin"}]},
    {"preset": "gpus", "driverRoot": "/run/nvidia/driver"},
    volume(csi={"driver": "x"}),
    volume(nfs={"server": "x", "path": "/"}),
    volume(persistentVolumeClaim={"claimName": "x"}),
    volume(ephemeral={"volumeClaimTemplate": {"spec": {}}}),
    volume(emptyDir={}),
    {"hostNetwork": True},
    {"hostPort": 9400},
    {"hostPID": True},
    {"tlsServerConfig": {"enabled": True, "existingSecret": "own"}},
]


def refusals(constraints: Object, pod: Object) -> Iterator[str]:
    """Yield the reasons for which OpenShift's admission would refuse a pod of the chart."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key) and not constraints[f"allow{key[0].upper()}{key[1:]}"]:
            yield key
    kinds = {kind for each in pod["volumes"] for kind in each if kind != "name"}
    yield from kinds - set(constraints["volumes"])
    if "hostPath" in kinds and not constraints["allowHostDirVolumePlugin"]:
        yield "allowHostDirVolumePlugin"
    for each in (*pod.get("initContainers", ()), *pod["containers"]):
        asked = any("hostPort" in port for port in each.get("ports", ()))
        if asked and not constraints["allowHostPorts"]:
            yield "hostPort"
        yield from _against(constraints, each.get("securityContext", {}), pod)


def _against(constraints: Object, context: Object, pod: Object) -> Iterator[str]:
    if context.get("privileged") and not constraints["allowPrivilegedContainer"]:
        yield "privileged"
    # Admission sets absent fields to fitting values. Privileged requires escalation.
    escalates = context.get("allowPrivilegeEscalation", context.get("privileged", False))
    if escalates and not constraints["allowPrivilegeEscalation"]:
        yield "allowPrivilegeEscalation"
    capabilities = context.get("capabilities")
    if capabilities is not None:
        yield from set(capabilities.get("add", ())) - set(constraints["allowedCapabilities"])
        dropped = set(capabilities.get("drop", ()))
        yield from set(constraints["requiredDropCapabilities"]) - dropped
    if constraints["readOnlyRootFilesystem"] and context.get("readOnlyRootFilesystem") is not True:
        # If absent, admission sets it, which would change the container's behaviour.
        yield "readOnlyRootFilesystem"
    profile = context.get("seccompProfile") or pod.get("securityContext", {}).get("seccompProfile")
    if profile is not None:
        form = {"RuntimeDefault": "runtime/default", "Unconfined": "unconfined"}
        profile_name = form.get(profile["type"]) or f"localhost/{profile['localhostProfile']}"
        if profile_name not in constraints["seccompProfiles"]:
            yield profile_name


def made(helm: Helm, values: Values) -> Manifests:
    return helm.template({**values, **WHERE})


@pytest.mark.parametrize("values", [*EVERY, *MORE], ids=lambda values: str(values)[:70])
def test_the_constraints_admit_the_pods(helm: Helm, values: Values) -> None:
    found = made(helm, values)
    constraints = found.one("SecurityContextConstraints")
    assert list(refusals(constraints, found.pod)) == []
    account = f"system:serviceaccount:podgpu:{found.pod['serviceAccountName']}"
    assert constraints["users"] == [account]


VOLUMES = ["configMap", "downwardAPI", "emptyDir", "projected", "secret"]
BARE: Object = {
    "allowPrivilegedContainer": False,
    "allowPrivilegeEscalation": False,
    "allowHostDirVolumePlugin": False,
    "allowHostIPC": False,
    "allowHostNetwork": False,
    "allowHostPID": False,
    "allowHostPorts": False,
    "readOnlyRootFilesystem": True,
    "requiredDropCapabilities": ["ALL"],
    "allowedCapabilities": [],
    "defaultAddCapabilities": [],
    "seccompProfiles": ["runtime/default"],
    "volumes": VOLUMES,
}
"""The constraints for the preset `gpus`, which any pod may have."""

WIDER: list[tuple[Values, dict[str, Any]]] = [
    ({}, {}),
    (
        container(privileged=True),
        {"allowPrivilegedContainer": True, "allowPrivilegeEscalation": True},
    ),
    (container(capabilities={"add": ["SYS_ADMIN"]}), {"allowedCapabilities": ["SYS_ADMIN"]}),
    (container(readOnlyRootFilesystem=False), {"readOnlyRootFilesystem": False}),
    (volume(nfs={"server": "x", "path": "/"}), {"volumes": sorted([*VOLUMES, "nfs"])}),
    (
        {"driverRoot": "/"},
        {"allowHostDirVolumePlugin": True, "volumes": sorted([*VOLUMES, "hostPath"])},
    ),
    ({"hostPID": True}, {"allowHostPID": True}),
    ({"hostPort": 9400}, {"allowHostPorts": True}),
]


@pytest.mark.parametrize(("values", "wider"), WIDER, ids=[str(values) for values, _ in WIDER])
def test_the_constraints_allow_only_what_the_values_need(
    helm: Helm, values: Values, wider: dict[str, Any]
) -> None:
    found = made(helm, {"preset": "gpus", **values}).one("SecurityContextConstraints")
    assert {key: found[key] for key in BARE} == {**BARE, **wider}


def test_the_extender_uses_the_user_id_of_openshift(helm: Helm) -> None:
    """The default constraints apply to it, and they refuse a fixed user id."""
    values: Values = {"extender": {"enabled": True}}
    spec = made(helm, values).one("Deployment")["spec"]["template"]["spec"]
    context = spec["containers"][0]["securityContext"]
    assert not {"runAsUser", "runAsGroup"} & context.keys()
    assert context["runAsNonRoot"] is True
    assert list(_against({**BARE, "volumes": []}, context, spec)) == []
    elsewhere = helm.template(values).one("Deployment")["spec"]["template"]["spec"]
    assert elsewhere["containers"][0]["securityContext"]["runAsUser"] == 65532
