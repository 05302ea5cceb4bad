"""The manifests on the page extender.md fit together, and its example requests work."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml

from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from pipeline.topology.node_annotation import KEY
from podgpu.extender.node_cache import node_record
from podgpu.extender.node_selection.node_state import State
from podgpu.extender.node_selection.pod_demand import Demand, Pod, Requirement, demand
from podgpu.extender.scheduler_messages import parse_question
from podgpu.extender.service import RESULTS
from tests.e2e.documented import objects
from tests.pipeline.topology.layouts import hgx
from tests.podgpu.extender.cluster import GPU, NOW, annotation_with, node
from tests.podgpu.extender.test_service import Served, http_request

PAGE = "extender.md"
TEXT = (Path(__file__).parents[3] / "docs" / PAGE).read_text(encoding="utf-8")


def named(kind: str, name: str) -> Any:
    (found,) = [made for made in objects(PAGE, kind) if made["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("kind", ["ClusterRole", "KubeSchedulerConfiguration", "Pod"])
def test_the_page_has_one_manifest_of_each_kind(kind: str) -> None:
    assert len(objects(PAGE, kind)) == 1


@pytest.mark.parametrize(
    ("kind", "name", "role"),
    [("DaemonSet", "podgpu", "podgpu-node"), ("Deployment", "podgpu-extender", "podgpu-extender")],
)
def test_the_manifests_refer_to_each_other(kind: str, name: str, role: str) -> None:
    made = named(kind, name)
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"]["matchLabels"] == labels
    account = named("ServiceAccount", made["spec"]["template"]["spec"]["serviceAccountName"])
    binding = named("ClusterRoleBinding", role)
    assert binding["roleRef"]["name"] == role
    (subject,) = binding["subjects"]
    namespaces = {x["metadata"]["namespace"] for x in (made, account)} | {subject["namespace"]}
    assert len(namespaces) == 1
    assert subject["name"] == account["metadata"]["name"]
    roles = objects(PAGE, "ClusterRole") + objects("sinks/node.md", "ClusterRole")
    assert role in {found["metadata"]["name"] for found in roles}


def test_the_service_leads_to_the_extender() -> None:
    service, deployment = (named(kind, "podgpu-extender") for kind in ("Service", "Deployment"))
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"] == template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == container["ports"][0]["containerPort"] == 9410
    (configuration,) = objects(PAGE, "KubeSchedulerConfiguration")
    (extender,) = configuration["extenders"]
    name, namespace = (service["metadata"][key] for key in ("name", "namespace"))
    assert extender["urlPrefix"] == f"http://{name}.{namespace}.svc:{port['port']}"
    assert [each["name"] for each in extender["managedResources"]] == [GPU]
    assert configuration["clientConnection"]["kubeconfig"], (
        "--kubeconfig has no effect with a configuration"
    )


def test_the_configuration_of_the_nodes_is_valid() -> None:
    text = named("ConfigMap", "podgpu")["data"]["config.yaml"]
    parse(text, RegisteredKinds(), env={"NODE_NAME": "gpu-node-1"}, origin=PAGE)
    kinds = {
        each["kind"]
        for part in ("sources", "sinks")
        for each in yaml.safe_load(text)[part].values()
    }
    assert kinds >= {"nvml", "podresources", "node"}


def test_the_requirement_of_the_example_pod_is_known() -> None:
    (made,) = objects(PAGE, "Pod")
    assert demand(msgspec.convert(made, Pod), [GPU]) == Demand(4, Requirement.NVLINK)


ASKED = re.findall(r"^ *\$ (curl -d .*)\n *(.*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("command", "answer"), ASKED)
async def test_an_example_request_gets_the_documented_response(command: str, answer: str) -> None:
    _, _, body, url = shlex.split(command)
    one = Served(20)
    found = node_record(
        KEY, [GPU], node("gpu-node-1", annotation_with(hgx(), 0xFF, at=NOW), gpus="8")
    )
    assert found is not None
    await one.nodes.replaced([found])
    assert parse_question(body.encode()).names == ["gpu-node-1"]
    verb = url.rpartition("/")[2]
    handler = {"filter": one.service.filter, "prioritize": one.service.prioritize}[verb]
    assert json.loads((await handler(http_request(body.encode()))).body) == json.loads(answer)
    one.service.close()


def test_the_page_has_an_example_request_of_each_verb() -> None:
    assert [command.rpartition("/")[2] for command, _ in ASKED] == ["filter", "prioritize"]


@pytest.mark.parametrize("word", [*RESULTS, *get_args(State)])
def test_the_page_documents_all_label_values_of_the_metrics(word: str) -> None:
    watching = TEXT[TEXT.index("## Watching it") :]
    assert f"`{word}`" in watching
