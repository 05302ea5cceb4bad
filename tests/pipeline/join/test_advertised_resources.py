"""How many devices an extended resource has: present, advertised, allocated."""

from collections.abc import Iterable

import pytest

from pipeline.join.device_index import DeviceIndex
from pipeline.model import Claim, Device, DevicesDiscovered, ResourceCount, SourceRemoved
from tests.pipeline.join.cluster import (
    GOOD_FOR,
    GPUS,
    A,
    B,
    C,
    Cluster,
    advertised,
    annotation_claim,
    checkpoint_claim,
    kubelet_claim,
    plugin_answer,
    pod,
    podlist_claim,
    runtime_claim,
    uid_of,
)
from tests.support.nodes import mig

SMALL = [mig(GPUS[0], gi, profile="1g.10gb") for gi in (7, 8)]
LARGE = [mig(GPUS[0], 2, profile="3g.40gb"), mig(GPUS[1], 2, profile="3g.40gb")]
MEDIA = mig(GPUS[1], 9, profile="1g.10gb+me")
S, T = (device.uuid for device in SMALL)


def counts(node: Cluster) -> dict[str, tuple[int, int | None, int | None]]:
    """Return (present, advertised, allocated) by resource name without `nvidia.com/`."""
    return {
        name.removeprefix("nvidia.com/"): (count.present, count.advertised, count.allocated)
        for name, count in node.snapshot().layout.resources.items()
    }


ALL = [A, B, C, GPUS[3].uuid]


@pytest.mark.parametrize(
    ("devices", "offered", "claims", "expected"),
    [
        pytest.param(GPUS, {"gpu": ALL}, [], {"gpu": (4, 4, 0)}, id="idle"),
        pytest.param(
            GPUS,
            {"gpu": ALL},
            [kubelet_claim("a", A, B), kubelet_claim("b", C)],
            {"gpu": (4, 4, 3)},
            id="busy",
        ),
        pytest.param(
            GPUS, {"gpu": ALL[1:]}, [kubelet_claim("b", C)], {"gpu": (4, 3, 1)}, id="one withdrawn"
        ),
        pytest.param(
            GPUS,
            {"gpu": ALL[1:]},
            [kubelet_claim("a", A)],
            {"gpu": (4, 3, 1)},
            id="withdrawn and held",
        ),
        pytest.param(GPUS, {"gpu": []}, [], {"gpu": (4, 0, 0)}, id="all withdrawn"),
        pytest.param(
            GPUS,
            {"gpu": [f"{uuid}::{n}" for uuid in ALL for n in range(10)]},
            [
                kubelet_claim("a", f"{A}::0"),
                kubelet_claim("b", f"{A}::1"),
                kubelet_claim("c", f"{B}::9"),
            ],
            {"gpu": (4, 4, 2)},
            id="time slices, each GPU once",
        ),
        pytest.param(
            GPUS,
            {"gpu__shared": [f"{A}::{n}" for n in range(10)]},
            [kubelet_claim("a", f"{A}::0", resource="nvidia.com/gpu.shared")],
            {"gpu.shared": (4, 1, 1)},
            id="time slices as another resource",
        ),
        pytest.param(
            GPUS,
            {"gpu": [f"nvidia{n}/vgpu{k}" for n in range(4) for k in range(2)]},
            [kubelet_claim("a", "nvidia3/vgpu0")],
            {"gpu": (4, 4, 1)},
            id="minor numbers",
        ),
        pytest.param(
            GPUS,
            {"gpu": [f"{uuid}-{n}" for uuid in ALL for n in range(10)]},
            [kubelet_claim("a", f"{A}-0"), kubelet_claim("b", f"{A}-1")],
            {"gpu": (4, 4, 1)},
            id="placeholders, each GPU once",
        ),
        pytest.param(
            [*GPUS, *SMALL, *LARGE, MEDIA],
            {
                "gpu": [C, ALL[3]],
                "mig_1g__10gb": [S, T],
                "mig_3g__40gb": [LARGE[0].uuid],
                "mig_1g__10gb__me": [MEDIA.uuid],
            },
            [kubelet_claim("a", S, resource="nvidia.com/mig-1g.10gb"), kubelet_claim("b", C)],
            {
                "gpu": (2, 2, 1),
                "mig-1g.10gb": (2, 2, 1),
                "mig-1g.10gb.me": (1, 1, 0),
                "mig-3g.40gb": (2, 1, 0),
            },
            id="MIG, mixed",
        ),
        pytest.param(
            [*GPUS[:1], *SMALL],
            {"gpu": [S, T]},
            [kubelet_claim("a", T)],
            {"gpu": (2, 2, 1)},
            id="MIG, single",
        ),
        pytest.param(
            [*GPUS[:1], *SMALL],
            {"mig_1g__10gb__shared": [f"{uuid}::{n}" for uuid in (S, T) for n in range(3)]},
            [kubelet_claim("a", f"{S}::2", resource="nvidia.com/mig-1g.10gb.shared")],
            {"mig-1g.10gb.shared": (2, 2, 1)},
            id="MIG, shared",
        ),
        pytest.param(
            GPUS,
            {"gpu": [*ALL, "GPU-that the driver lost"]},
            [kubelet_claim("a", "GPU-that the driver lost")],
            {"gpu": (4, 5, 1)},
            id="a device that the driver does not show",
        ),
        pytest.param(
            GPUS,
            {},
            [kubelet_claim("a", "0000:09:00.0", resource="nvidia.com/hostdev")],
            {"hostdev": (0, 0, 1)},
            id="devices that are no GPUs",
        ),
        pytest.param(
            GPUS,
            {"gpu": ALL},
            [kubelet_claim("a")],
            {"gpu": (4, 4, 0)},
            id="a claim without devices",
        ),
    ],
)
def test_present_advertised_and_allocated_devices_are_counted(
    devices: list[Device],
    offered: dict[str, Iterable[str]],
    claims: list[Claim],
    expected: dict[str, tuple[int, int, int]],
) -> None:
    node = Cluster(devices)
    node.emit("kubelet", advertised(**offered))
    node.kubelet(*claims)
    assert counts(node) == expected


def test_substituted_devices_are_counted_as_the_kubelet_requested_them() -> None:
    node = Cluster()
    node.emit("kubelet", advertised(gpu=ALL))
    node.checkpoint(plugin_answer("1", [A], C), plugin_answer("2", [B], C))
    assert counts(node) == {"gpu": (4, 4, 2)}
    node.kubelet(kubelet_claim("a", A), kubelet_claim("b", B))
    assert counts(node) == {"gpu": (4, 4, 2)}


def test_reports_of_two_sources_are_counted_once() -> None:
    node = Cluster()
    node.pods(pod("a"))
    node.emit("kubelet", advertised(gpu=ALL))
    node.emit("checkpoint", advertised(gpu=ALL))
    node.kubelet(kubelet_claim("a", A))
    node.checkpoint(checkpoint_claim(uid_of("a"), A))
    assert counts(node) == {"gpu": (4, 4, 1)}


def test_devices_that_the_kubelet_did_not_allocate_are_not_counted() -> None:
    node = Cluster()
    node.kubelet()
    node.emit("kubelet", advertised(gpu=ALL))
    node.pods(pod("b", claims=[annotation_claim("b", B)]))
    node.file(podlist_claim("a", A))
    node.runtime(runtime_claim("c", C))
    assert counts(node) == {"gpu": (4, 4, 0)}


def test_devices_of_an_ended_pod_are_not_allocated() -> None:
    node = Cluster()
    node.emit("kubelet", advertised(gpu=ALL))
    node.pods(pod("a"))
    node.kubelet(kubelet_claim("a", A))
    assert counts(node) == {"gpu": (4, 4, 1)}
    node.upsert(pod("a", ended=True))
    assert counts(node) == {"gpu": (4, 4, 0)}


class Idle(Cluster):
    """A node whose kubelet has reported that no container holds a device."""

    def __init__(self, devices: Iterable[Device] = GPUS) -> None:
        super().__init__(devices)
        self.kubelet()


class TestTime:
    def test_a_resource_without_devices_stays_visible(self) -> None:
        node = Idle()
        node.emit("kubelet", advertised(gpu=ALL))
        node.emit("kubelet", advertised())
        assert counts(node) == {"gpu": (4, 0, 0)}

    def test_the_advertised_count_is_unknown_without_a_report(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        assert counts(node) == {"gpu": (4, None, 1)}
        node.emit("kubelet", advertised(gpu=ALL))
        assert counts(node) == {"gpu": (4, 4, 1)}
        node.tick(GOOD_FOR)
        assert counts(node) == {"gpu": (4, 4, 1)}
        node.tick(GOOD_FOR + 1)
        assert counts(node) == {"gpu": (4, None, None)}

    def test_the_allocated_count_is_unknown_without_claims(self) -> None:
        node = Cluster()
        node.emit("kubelet", advertised(gpu=ALL))
        assert counts(node) == {"gpu": (4, 4, None)}

    def test_resources_are_removed_with_their_source(self) -> None:
        node = Cluster()
        node.emit("kubelet", advertised(gpu=ALL))
        node.emit("kubelet", SourceRemoved())
        assert counts(node) == {}

    def test_the_same_resources_again_change_nothing(self) -> None:
        node = Idle()
        node.emit("kubelet", advertised(gpu=ALL))
        layout = node.snapshot().layout
        node.seconds = 200
        assert node.emit("kubelet", advertised(gpu=ALL)) is False
        assert node.snapshot().layout is layout
        node.tick(GOOD_FOR + 150)
        assert counts(node) == {"gpu": (4, 4, None)}

    def test_counts_follow_the_devices(self) -> None:
        node = Idle(GPUS[:2])
        node.emit("kubelet", advertised(gpu=[A, B]))
        assert counts(node) == {"gpu": (2, 2, 0)}
        node.say(DevicesDiscovered((GPUS[1],)))
        assert counts(node) == {"gpu": (1, 2, 0)}

    def test_an_id_is_counted_as_a_device_when_the_device_is_discovered(self) -> None:
        node = Idle(GPUS[:1])
        node.emit("kubelet", advertised(gpu=[f"{B}::0", f"{B}::1"]))
        assert counts(node) == {"gpu": (1, 2, 0)}
        node.has(*GPUS[:2])
        assert counts(node) == {"gpu": (2, 1, 0)}


@pytest.mark.slow
def test_a_long_list_of_advertised_ids_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that divides a GPU by memory offers one id for each unit of memory."""
    node = Idle()
    node.emit("kubelet", advertised(gpu=[f"{A}::{n}" for n in range(50_000)]))
    assert counts(node) == {"gpu": (4, 1, 0)}
    calls = 0
    resolve = DeviceIndex.resolve

    def count(*args: object) -> object:
        nonlocal calls
        calls += 1
        return resolve(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(DeviceIndex, "resolve", count)
    node.kubelet(kubelet_claim("a", f"{A}::1"))
    assert node.snapshot().layout.resources == {"nvidia.com/gpu": ResourceCount(4, 1, 1)}
    assert calls < 10
