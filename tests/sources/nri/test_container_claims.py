"""Which GPUs a container has, from everything that the runtime reports about it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.model import Claim, PartialRef
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from tests.fakes.nri import wire
from tests.sources.nri.plugin_connection import PluginConnection

A = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"
B = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
MIG = "MIG-a5fa6120-f6fa-51b6-9820-a42112640629"
DRA = "k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a-gpu-0"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
MOUNTS = "/var/run/nvidia-container-devices"
CONTROL = [wire.node("/dev/nvidiactl", 195, 255), wire.node("/dev/nvidia-uvm", 510, 0)]
SUBJECT = PartialRef("ml", "train-0", "main", "uid-train-0", "train-0.main")

EvidenceAndIds = list[tuple[str, tuple[str, ...]]]


def env(value: str) -> list[str]:
    return [f"NVIDIA_VISIBLE_DEVICES={value}"]


def claims_of(container: bytes, annotations: Mapping[str, str] | None = None) -> tuple[Claim, ...]:
    connection = PluginConnection()
    connection.synchronize([wire.pod(annotations=annotations)], [container])
    (one,) = connection.running().values()
    assert one.subject == SUBJECT
    return one.claims


def evidence_and_ids(claims: Sequence[Claim]) -> EvidenceAndIds:
    return [
        (claim.origin.evidence.name, tuple(f"{one.scheme} {one.text}" for one in claim.devices))
        for claim in claims
    ]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({}, [], id="no devices"),
        pytest.param({"env": env(A)}, [("RUNTIME_ENV", (f"visible {A}",))], id="a uuid"),
        pytest.param(
            {"env": env(f"{A},{B}")}, [("RUNTIME_ENV", (f"visible {A}", f"visible {B}"))], id="two"
        ),
        pytest.param({"env": env("0,1:2")}, [("RUNTIME_ENV", ("visible 0", "visible 1:2"))]),
        pytest.param({"env": env(MIG)}, [("RUNTIME_ENV", (f"visible {MIG}",))], id="an instance"),
        pytest.param({"env": env("all")}, [], id="all, as in images"),
        pytest.param({"env": env("none")}, [], id="none"),
        pytest.param({"env": env("void")}, [], id="void"),
        pytest.param({"env": env("")}, [], id="empty"),
        pytest.param({"env": [*env(A), *env(B)]}, [("RUNTIME_ENV", (f"visible {B}",))], id="last"),
        pytest.param({"env": [f"MY_{env(A)[0]}", f"X={env(A)[0]}"]}, [], id="other variables"),
        pytest.param({"env": ["NVIDIA_VISIBLE_DEVICES"]}, [], id="no value"),
        pytest.param({"env": env("x" * 20_000)}, [], id="value too long"),
        pytest.param({"env": env("y" * 600)}, [], id="id too long"),
        pytest.param({"env": env(",".join(map(str, range(300))))}, [], id="too many ids"),
        pytest.param(
            {"env": env(MOUNTS), "mounts": [f"{MOUNTS}/{A}", "/etc/hosts", f"{MOUNTS}/imex/0"]},
            [("RUNTIME_ENV", (f"visible {A}",))],
            id="mounts",
        ),
        pytest.param(
            {"cdi": [f"nvidia.com/gpu={A}", "nvidia.com/gds=all"]},
            [("RUNTIME_CDI", (f"cdi nvidia.com/gpu={A}",))],
            id="CDI",
        ),
        pytest.param({"cdi": [DRA]}, [("RUNTIME_CDI", (f"cdi {DRA}",))], id="CDI of a claim"),
        pytest.param(
            {"cdi": [f"nvidia.com/gpu={A}"], "env": env("void"), "devices": [wire.gpu_node(0)]},
            [("RUNTIME_CDI", (f"cdi nvidia.com/gpu={A}",)), ("RUNTIME_NODES", ("minor 0",))],
            id="CDI and device nodes, and no names",
        ),
        pytest.param(
            {"annotations": {"cdi.k8s.io/nvidia-device-plugin_1": "nvidia.com/gpu=0"}},
            [("RUNTIME_CDI", ("cdi nvidia.com/gpu=0",))],
            id="CDI by annotation",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(3), wire.gpu_node(1), *CONTROL]},
            [("RUNTIME_NODES", ("minor 3", "minor 1"))],
            id="device nodes",
        ),
        pytest.param(
            {"devices": [wire.node("/dev/nvidia0", 195, 3)]},
            [("RUNTIME_NODES", ("minor 3",))],
            id="a node under another name",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(3)], "env": env("all")},
            [("RUNTIME_NODES", ("minor 3",))],
            id="device nodes, and an image that sets all",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(3)], "env": env(A)},
            [("RUNTIME_ENV", (f"visible {A}",)), ("RUNTIME_NODES", ("minor 3",))],
            id="device nodes and names",
        ),
        pytest.param({"devices": CONTROL}, [], id="only control devices"),
        pytest.param(
            {"devices": [wire.gpu_node(0), wire.node("/dev/nvidia-caps/nvidia-cap21", 508, 21)]},
            [],
            id="device nodes of a MIG instance don't show which one",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(n) for n in range(8)] + [wire.node("/dev/null", 1, 3)]},
            [],
            id="privileged",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(0), wire.node("/dev/kmsg", 1, 11)], "env": env(A)},
            [("RUNTIME_ENV", (f"visible {A}",))],
            id="privileged, with a name",
        ),
        pytest.param({"devices": [wire.node("/dev/sda", 195, 0, "b")]}, [], id="a disk"),
        pytest.param(
            {"devices": [wire.gpu_node(0)], "cdi": ["management.nvidia.com/gpu=all"]},
            [],
            id="CDI name of an operator",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(0)], "annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=all"}},
            [],
            id="CDI name of all GPUs",
        ),
    ],
)
def test_the_claims_of_a_container(container: dict[str, Any], expected: EvidenceAndIds) -> None:
    assert evidence_and_ids(claims_of(wire.container(**container))) == expected


def test_the_pod_of_an_operator_has_all_device_nodes_and_no_claim() -> None:
    annotations = {"nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all"}
    assert claims_of(wire.container(devices=[wire.gpu_node(0)]), annotations) == ()


def test_an_annotation_that_requests_a_device_is_no_claim() -> None:
    """A pod's author may write it; the device nodes show whether the runtime followed it."""
    annotations = {"nvidia.cdi.k8s.io/pod": f"nvidia.com/gpu={A}", "cdi.k8s.io/x": DRA}
    assert claims_of(wire.container(), annotations) == ()
    actual = claims_of(wire.container(devices=[wire.gpu_node(2)]), annotations)
    assert evidence_and_ids(actual) == [("RUNTIME_NODES", ("minor 2",))]


def test_t02_a_cdi_annotation_copied_from_the_pod_is_no_claim_of_the_container() -> None:
    """CRI-O copies annotations of a pod to its containers."""
    forged = {"cdi.k8s.io/x": f"nvidia.com/gpu={A}"}
    actual = {"cdi.k8s.io/nvidia-device-plugin_1": f"nvidia.com/gpu={B}"}
    assert claims_of(wire.container(annotations=forged), forged) == ()
    both = claims_of(wire.container(annotations=forged | actual), forged)
    assert evidence_and_ids(both) == [("RUNTIME_CDI", (f"cdi nvidia.com/gpu={B}",))]


def test_a_claim_names_its_container_and_its_start() -> None:
    (claim,) = claims_of(wire.container(env=env(A), created=5, started=9))
    assert claim.subject == SUBJECT
    assert claim.since is not None
    assert claim.since.wall_ns == 5
    assert claim.share is None
    (claim,) = claims_of(wire.container(env=env(A)))
    assert claim.since is None


@pytest.mark.parametrize("value", ['{"gpu": [{"minor": 1}]}', '{"gpu": 7}', " " * 70_000])
def test_t03_an_annotation_of_the_pod_is_no_claim(value: str) -> None:
    """The runtime doesn't report what the pod requests, so the annotation can't be checked."""
    connection = PluginConnection()
    connection.synchronize([wire.pod(annotations={KOORDINATOR: value})], [wire.container()])
    changes = connection.take_changes()
    assert [one.claims for one in changes.full_list or ()] == [()]
    assert changes.warnings == []


def test_the_number_of_claimed_devices_of_the_source_is_limited() -> None:
    connection = PluginConnection()
    many = env(",".join(map(str, range(200))))
    containers = [wire.container(key=f"c{n}", env=many) for n in range(60)]
    connection.synchronize([wire.pod()], containers)
    changes = connection.take_changes()
    assert changes.full_list is not None
    assert len(changes.full_list) == 60
    held = sum(len(claim.devices) for one in changes.full_list for claim in one.claims)
    assert held == MAX_CLAIMED_DEVICES
    (warning,) = changes.warnings
    assert warning == "containers hold more than 10000 devices; podgpu ignores further claims"
    for container in containers[:10]:
        connection.send_event("StopContainer", wire.pod(), container)
    connection.send_event(
        "PostStartContainer", wire.pod(), wire.container(key="new", env=many, pid=3)
    )
    new = connection.take_changes().changes["new"]
    assert new is not None
    assert len(new.claims) == 1
