"""Which GPUs a container was given, by everything that the runtime shows of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.model import Claim, PartialRef
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from tests.fakes.nri import wire
from tests.sources.nri.talking import Talk

A = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"
B = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
MIG = "MIG-a5fa6120-f6fa-51b6-9820-a42112640629"
DRA = "k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a-gpu-0"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
MOUNTS = "/var/run/nvidia-container-devices"
CONTROL = [wire.node("/dev/nvidiactl", 195, 255), wire.node("/dev/nvidia-uvm", 510, 0)]
SUBJECT = PartialRef("ml", "train-0", "main", "uid-train-0", "train-0.main")

Shown = list[tuple[str, tuple[str, ...]]]


def env(value: str) -> list[str]:
    return [f"NVIDIA_VISIBLE_DEVICES={value}"]


def given_out(container: bytes, annotations: Mapping[str, str] | None = None) -> tuple[Claim, ...]:
    talk = Talk()
    talk.synchronize([wire.pod(annotations=annotations)], [container])
    (one,) = talk.running().values()
    assert one.subject == SUBJECT
    return one.claims


def shown(claims: Sequence[Claim]) -> Shown:
    return [
        (claim.origin.evidence.name, tuple(f"{one.scheme} {one.text}" for one in claim.devices))
        for claim in claims
    ]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"env": env(A)}, [("RUNTIME_ENV", (f"visible {A}",))], id="a uuid"),
        pytest.param(
            {"env": env(f"{A},{B}")}, [("RUNTIME_ENV", (f"visible {A}", f"visible {B}"))], id="two"
        ),
        pytest.param({"env": env("0,1:2")}, [("RUNTIME_ENV", ("visible 0", "visible 1:2"))]),
        pytest.param({"env": env(MIG)}, [("RUNTIME_ENV", (f"visible {MIG}",))], id="an instance"),
        pytest.param({"env": env("all")}, [], id="all, as images have it"),
        pytest.param({"env": env("none")}, [], id="none"),
        pytest.param({"env": env("void")}, [], id="void"),
        pytest.param({"env": env("")}, [], id="empty"),
        pytest.param({"env": [*env(A), *env(B)]}, [("RUNTIME_ENV", (f"visible {B}",))], id="last"),
        pytest.param({"env": [f"MY_{env(A)[0]}", f"X={env(A)[0]}"]}, [], id="other variables"),
        pytest.param({"env": ["NVIDIA_VISIBLE_DEVICES"]}, [], id="no value"),
        pytest.param({"env": env("x" * 20_000)}, [], id="far too long"),
        pytest.param({"env": env("y" * 600)}, [], id="an id that is too long"),
        pytest.param({"env": env(",".join(map(str, range(300))))}, [], id="more than a node has"),
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
        pytest.param({"cdi": [DRA]}, [("RUNTIME_CDI", (f"cdi {DRA}",))], id="a claim's"),
        pytest.param(
            {"cdi": [f"nvidia.com/gpu={A}"], "env": env("void"), "devices": [wire.gpu_node(0)]},
            [("RUNTIME_CDI", (f"cdi nvidia.com/gpu={A}",)), ("RUNTIME_NODES", ("minor 0",))],
            id="CDI before all names, and nodes",
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
            id="nodes and an image that says all",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(3)], "env": env(A)},
            [("RUNTIME_ENV", (f"visible {A}",)), ("RUNTIME_NODES", ("minor 3",))],
            id="nodes and names",
        ),
        pytest.param({"devices": CONTROL}, [], id="control devices alone"),
        pytest.param(
            {"devices": [wire.gpu_node(0), wire.node("/dev/nvidia-caps/nvidia-cap21", 508, 21)]},
            [],
            id="nodes of an instance: which one, they don't tell",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(n) for n in range(8)] + [wire.node("/dev/null", 1, 3)]},
            [],
            id="privileged",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(0), wire.node("/dev/kmsg", 1, 11)], "env": env(A)},
            [("RUNTIME_ENV", (f"visible {A}",))],
            id="privileged, and given one",
        ),
        pytest.param({"devices": [wire.node("/dev/sda", 195, 0, "b")]}, [], id="a disk"),
        pytest.param(
            {"devices": [wire.gpu_node(0)], "cdi": ["management.nvidia.com/gpu=all"]},
            [],
            id="an operator's own",
        ),
        pytest.param(
            {"devices": [wire.gpu_node(0)], "annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=all"}},
            [],
            id="all of them",
        ),
    ],
)
def test_a_container_was_given(of: dict[str, Any], expected: Shown) -> None:
    assert shown(given_out(wire.container(**of))) == expected


def test_an_operators_pod_has_all_nodes_and_holds_none() -> None:
    annotations = {"nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all"}
    assert given_out(wire.container(devices=[wire.gpu_node(0)]), annotations) == ()


def test_what_a_pod_wishes_for_is_not_what_it_was_given() -> None:
    """Who may create a pod may write this; the nodes tell whether somebody heeded it."""
    annotations = {"nvidia.cdi.k8s.io/pod": f"nvidia.com/gpu={A}", "cdi.k8s.io/x": DRA}
    assert given_out(wire.container(), annotations) == ()
    given = given_out(wire.container(devices=[wire.gpu_node(2)]), annotations)
    assert shown(given) == [("RUNTIME_NODES", ("minor 2",))]


def test_t02_a_pod_s_annotation_that_the_runtime_copies_is_no_cdi_name_of_the_container() -> None:
    """CRI-O copies a pod's annotations to its containers."""
    forged = {"cdi.k8s.io/x": f"nvidia.com/gpu={A}"}
    given = {"cdi.k8s.io/nvidia-device-plugin_1": f"nvidia.com/gpu={B}"}
    assert given_out(wire.container(annotations=forged), forged) == ()
    both = given_out(wire.container(annotations=forged | given), forged)
    assert shown(both) == [("RUNTIME_CDI", (f"cdi nvidia.com/gpu={B}",))]


def test_a_claim_names_its_container_and_its_beginning() -> None:
    (claim,) = given_out(wire.container(env=env(A), created=5, started=9))
    assert claim.subject == SUBJECT
    assert claim.since is not None
    assert claim.since.wall_ns == 5
    assert claim.share is None
    (claim,) = given_out(wire.container(env=env(A)))
    assert claim.since is None


@pytest.mark.parametrize("value", ['{"gpu": [{"minor": 1}]}', '{"gpu": 7}', " " * 70_000])
def test_t03_what_an_annotation_of_the_pod_says_is_not_reported(value: str) -> None:
    """The runtime doesn't tell what the pod requests, and so not whether the annotation counts."""
    talk = Talk()
    talk.synchronize([wire.pod(annotations={KOORDINATOR: value})], [wire.container()])
    news = talk.news()
    assert [one.claims for one in news.full_list or ()] == [()]
    assert news.warnings == []


def test_one_source_reports_of_no_more_devices_than_the_join_bears() -> None:
    talk = Talk()
    many = env(",".join(map(str, range(200))))
    containers = [wire.container(key=f"c{n}", env=many) for n in range(60)]
    talk.synchronize([wire.pod()], containers)
    news = talk.news()
    assert news.full_list is not None
    assert len(news.full_list) == 60
    held = sum(len(claim.devices) for one in news.full_list for claim in one.claims)
    assert held == MAX_CLAIMED_DEVICES
    (complaint,) = news.warnings
    assert complaint == "containers hold more than 10000 devices; the others are ignored"
    for container in containers[:10]:
        talk.tell("StopContainer", wire.pod(), container)
    talk.tell("PostStartContainer", wire.pod(), wire.container(key="new", env=many, pid=3))
    new = talk.news().changes["new"]
    assert new is not None
    assert len(new.claims) == 1
