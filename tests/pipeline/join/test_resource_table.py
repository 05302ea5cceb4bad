"""How many devices stand behind an extended resource: present, advertised, allocated."""

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
    annotated,
    answered,
    filed,
    kept,
    listed,
    offer,
    pod,
    ran,
    uid_of,
)
from tests.support.nodes import mig

SMALL = [mig(GPUS[0], gi, profile="1g.10gb") for gi in (7, 8)]
LARGE = [mig(GPUS[0], 2, profile="3g.40gb"), mig(GPUS[1], 2, profile="3g.40gb")]
MEDIA = mig(GPUS[1], 9, profile="1g.10gb+me")
S, T = (device.uuid for device in SMALL)


def counts(node: Cluster) -> dict[str, tuple[int, int | None, int | None]]:
    """(present, advertised, allocated) by resource without `nvidia.com/`."""
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
            GPUS, {"gpu": ALL}, [listed("a", A, B), listed("b", C)], {"gpu": (4, 4, 3)}, id="busy"
        ),
        pytest.param(
            GPUS, {"gpu": ALL[1:]}, [listed("b", C)], {"gpu": (4, 3, 1)}, id="one is withdrawn"
        ),
        pytest.param(
            GPUS, {"gpu": ALL[1:]}, [listed("a", A)], {"gpu": (4, 3, 1)}, id="withdrawn and held"
        ),
        pytest.param(GPUS, {"gpu": []}, [], {"gpu": (4, 0, 0)}, id="all are withdrawn"),
        pytest.param(
            GPUS,
            {"gpu": [f"{uuid}::{n}" for uuid in ALL for n in range(10)]},
            [listed("a", f"{A}::0"), listed("b", f"{A}::1"), listed("c", f"{B}::9")],
            {"gpu": (4, 4, 2)},
            id="time slices, each GPU once",
        ),
        pytest.param(
            GPUS,
            {"gpu__shared": [f"{A}::{n}" for n in range(10)]},
            [listed("a", f"{A}::0", resource="nvidia.com/gpu.shared")],
            {"gpu.shared": (4, 1, 1)},
            id="time slices under a name of their own",
        ),
        pytest.param(
            GPUS,
            {"gpu": [f"nvidia{n}/vgpu{k}" for n in range(4) for k in range(2)]},
            [listed("a", "nvidia3/vgpu0")],
            {"gpu": (4, 4, 1)},
            id="by minor number",
        ),
        pytest.param(
            GPUS,
            {"gpu": [f"{uuid}-{n}" for uuid in ALL for n in range(10)]},
            [listed("a", f"{A}-0"), listed("b", f"{A}-1")],
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
            [listed("a", S, resource="nvidia.com/mig-1g.10gb"), listed("b", C)],
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
            [listed("a", T)],
            {"gpu": (2, 2, 1)},
            id="MIG, single",
        ),
        pytest.param(
            [*GPUS[:1], *SMALL],
            {"mig_1g__10gb__shared": [f"{uuid}::{n}" for uuid in (S, T) for n in range(3)]},
            [listed("a", f"{S}::2", resource="nvidia.com/mig-1g.10gb.shared")],
            {"mig-1g.10gb.shared": (2, 2, 1)},
            id="MIG, shared",
        ),
        pytest.param(
            GPUS,
            {"gpu": [*ALL, "GPU-that the driver lost"]},
            [listed("a", "GPU-that the driver lost")],
            {"gpu": (4, 5, 1)},
            id="what the driver doesn't show",
        ),
        pytest.param(
            GPUS,
            {},
            [listed("a", "0000:09:00.0", resource="nvidia.com/hostdev")],
            {"hostdev": (0, 0, 1)},
            id="what are no GPUs",
        ),
        pytest.param(
            GPUS, {"gpu": ALL}, [listed("a")], {"gpu": (4, 4, 0)}, id="a claim on nothing"
        ),
    ],
)
def test_counts(
    devices: list[Device],
    offered: dict[str, Iterable[str]],
    claims: list[Claim],
    expected: dict[str, tuple[int, int, int]],
) -> None:
    node = Cluster(devices)
    node.tell("kubelet", offer(**offered))
    node.kubelet(*claims)
    assert counts(node) == expected


def test_devices_that_the_plugin_substituted_are_counted_as_the_kubelet_asked_for_them() -> None:
    node = Cluster()
    node.tell("kubelet", offer(gpu=ALL))
    node.checkpoint(answered("1", [A], C), answered("2", [B], C))
    assert counts(node) == {"gpu": (4, 4, 2)}
    node.kubelet(listed("a", A), listed("b", B))
    assert counts(node) == {"gpu": (4, 4, 2)}


def test_what_two_sources_say_is_counted_once() -> None:
    node = Cluster()
    node.pods(pod("a"))
    node.tell("kubelet", offer(gpu=ALL))
    node.tell("checkpoint", offer(gpu=ALL))
    node.kubelet(listed("a", A))
    node.checkpoint(kept(uid_of("a"), A))
    assert counts(node) == {"gpu": (4, 4, 1)}


def test_what_the_kubelet_did_not_give_is_not_allocated() -> None:
    node = Cluster()
    node.kubelet()
    node.tell("kubelet", offer(gpu=ALL))
    node.pods(pod("b", claims=[annotated("b", B)]))
    node.file(filed("a", A))
    node.runtime(ran("c", C))
    assert counts(node) == {"gpu": (4, 4, 0)}


def test_a_pod_that_has_ended_gives_back_what_it_had() -> None:
    node = Cluster()
    node.tell("kubelet", offer(gpu=ALL))
    node.pods(pod("a"))
    node.kubelet(listed("a", A))
    assert counts(node) == {"gpu": (4, 4, 1)}
    node.upsert(pod("a", ended=True))
    assert counts(node) == {"gpu": (4, 4, 0)}


class Quiet(Cluster):
    """A node whose kubelet has said that nobody holds anything."""

    def __init__(self, devices: Iterable[Device] = GPUS) -> None:
        super().__init__(devices)
        self.kubelet()


class TestTime:
    def test_a_resource_that_lost_its_last_device_stays_visible(self) -> None:
        node = Quiet()
        node.tell("kubelet", offer(gpu=ALL))
        node.tell("kubelet", offer())
        assert counts(node) == {"gpu": (4, 0, 0)}

    def test_when_no_one_says_what_is_offered_that_is_unknown_and_not_0(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        assert counts(node) == {"gpu": (4, None, 1)}
        node.tell("kubelet", offer(gpu=ALL))
        assert counts(node) == {"gpu": (4, 4, 1)}
        node.tick(GOOD_FOR)
        assert counts(node) == {"gpu": (4, 4, 1)}
        node.tick(GOOD_FOR + 1)
        assert counts(node) == {"gpu": (4, None, None)}

    def test_what_no_one_says_is_unknown_and_not_0(self) -> None:
        node = Cluster()
        node.tell("kubelet", offer(gpu=ALL))
        assert counts(node) == {"gpu": (4, 4, None)}

    def test_it_leaves_with_its_source(self) -> None:
        node = Cluster()
        node.tell("kubelet", offer(gpu=ALL))
        node.tell("kubelet", SourceRemoved())
        assert counts(node) == {}

    def test_said_again_it_changes_nothing(self) -> None:
        node = Quiet()
        node.tell("kubelet", offer(gpu=ALL))
        layout = node.snapshot().layout
        node.seconds = 200
        assert node.tell("kubelet", offer(gpu=ALL)) is False
        assert node.snapshot().layout is layout
        node.tick(GOOD_FOR + 150)
        assert counts(node) == {"gpu": (4, 4, None)}

    def test_it_follows_the_devices(self) -> None:
        node = Quiet(GPUS[:2])
        node.tell("kubelet", offer(gpu=[A, B]))
        assert counts(node) == {"gpu": (2, 2, 0)}
        node.say(DevicesDiscovered((GPUS[1],)))
        assert counts(node) == {"gpu": (1, 2, 0)}

    def test_an_id_that_becomes_known_is_the_device_s(self) -> None:
        node = Quiet(GPUS[:1])
        node.tell("kubelet", offer(gpu=[f"{B}::0", f"{B}::1"]))
        assert counts(node) == {"gpu": (1, 2, 0)}
        node.has(*GPUS[:2])
        assert counts(node) == {"gpu": (2, 1, 0)}


def test_a_long_offer_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that hands out memory by the unit offers as many ids as there are units."""
    node = Quiet()
    node.tell("kubelet", offer(gpu=[f"{A}::{n}" for n in range(50_000)]))
    assert counts(node) == {"gpu": (4, 1, 0)}
    asked = 0
    resolve = DeviceIndex.resolve

    def count(*args: object) -> object:
        nonlocal asked
        asked += 1
        return resolve(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(DeviceIndex, "resolve", count)
    node.kubelet(listed("a", f"{A}::1"))
    assert node.snapshot().layout.resources == {"nvidia.com/gpu": ResourceCount(4, 1, 1)}
    assert asked < 10
