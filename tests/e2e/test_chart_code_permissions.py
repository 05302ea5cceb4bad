"""Code permissions in the chart, and the network policy of the extender (R13, R14)."""

import itertools
from pathlib import Path

import pytest

from pipeline.component.code_permissions import NOTHING, Allowed, libraries
from tests.e2e.charts import EVERY, Values, source
from tests.e2e.helm import Helm, HelmError

RUN = ["run", "-c", "/etc/podgpu/config.yaml"]
LIBRARY = "/usr/lib/libdcgm.so.4"
ENGINE = source("engine", kind="hostengine", library=LIBRARY)
MOUNTED: Values = {
    "extraConfigMapVolumes": [{"name": "it", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "it", "mountPath": LIBRARY}],
}


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ({}, []),
        (ENGINE, ["--allow-library", LIBRARY]),
        ({**ENGINE, **MOUNTED}, ["--allow-library", LIBRARY]),
        (source("engine", kind="hostengine"), []),
        (source("engine", kind="hostengine", library="libdcgm.so.4"), []),
        (
            {
                "config": {
                    "sources": {name: {**ENGINE["config"]["sources"]["engine"]} for name in "ab"}
                }
            },
            ["--allow-library", LIBRARY],
        ),
        ({"allowConfiguredCode": True}, ["--allow-configured-code"]),
        (
            {**ENGINE, "allowConfiguredCode": True},
            ["--allow-configured-code", "--allow-library", LIBRARY],
        ),
        # The driver library is in the linker's path, and in no key of the configuration.
        ({"distribution": "gke"}, []),
        ({"driverRoot": "/", "driverLibrary": "/usr/lib64/libnvidia-ml.so.1"}, []),
    ],
    ids=str,
)
def test_r13_values_become_code_permissions(helm: Helm, values: Values, more: list[str]) -> None:
    assert helm.template(values).container["args"] == [*RUN, *more]


def test_r13_the_dcgm_exporter_command_line_allows_no_code(helm: Helm) -> None:
    made = helm.template({"dcgmExporter": True, "allowConfiguredCode": True})
    assert made.container["args"] == ["dcgm-exporter"]


@pytest.mark.parametrize("values", EVERY, ids=str)
def test_r13_the_rendered_arguments_allow_the_configured_libraries(
    helm: Helm, values: Values
) -> None:
    made = helm.template(values)
    words: list[str] = made.container["args"]
    if words[0] == "run":
        named = [at for word, at in itertools.pairwise(words) if word == "--allow-library"]
        config = made.config()
        assert libraries(config, Allowed(libraries=frozenset(map(Path, named)))) == []
        assert bool(libraries(config, NOTHING)) is bool(named)


FROM = [{"ipBlock": {"cidr": "10.0.0.0/28"}}]


def test_r14_a_network_policy_protects_the_extender(helm: Helm) -> None:
    extender: Values = {"enabled": True, "port": 80, "networkPolicy": {"from": FROM}}
    made = helm.template({"extender": extender})
    (policy,) = made.all("NetworkPolicy")
    assert policy["metadata"]["name"] == "podgpu-extender"
    labels = made.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert chosen.items() <= labels.items()
    ours = made.one("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert not chosen.items() <= ours.items(), "the policy does not select the DaemonSet's pods"
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    (rule,) = policy["spec"]["ingress"]
    assert rule == {"ports": [{"port": "extender", "protocol": "TCP"}], "from": FROM}
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    assert "extender" in [port["name"] for port in container["ports"]]


@pytest.mark.parametrize(
    "extender",
    [
        {"enabled": True},
        {"enabled": True, "networkPolicy": {"from": []}},
        {"enabled": True, "networkPolicy": None},
        {"networkPolicy": {"from": FROM}},
    ],
    ids=str,
)
def test_r14_no_policy_is_created_without_allowed_clients(helm: Helm, extender: Values) -> None:
    assert helm.template({"extender": extender}).all("NetworkPolicy") == []


def test_r14_the_policy_of_the_daemonset_does_not_select_the_extender(helm: Helm) -> None:
    extender = {"enabled": True, "networkPolicy": {"from": FROM}}
    made = helm.template({"networkPolicy": {"enabled": True}, "extender": extender})
    names = {each["metadata"]["name"] for each in made.all("NetworkPolicy")}
    assert names == {"podgpu", "podgpu-extender"}
    labels = made.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    chosen = made.one("NetworkPolicy", "podgpu")["spec"]["podSelector"]["matchLabels"]
    assert not chosen.items() <= labels.items()


def test_r14_allowed_clients_must_be_objects(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"extender[./]networkPolicy[./]from"):
        helm.template({"extender": {"networkPolicy": {"from": ["10.0.0.0/28"]}}})
