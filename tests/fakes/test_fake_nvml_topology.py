"""The topology of the fake NVML, read through the real pynvml module."""

import pynvml
import pytest

from tests.fakes.helpers import error_of, start
from tests.fakes.nvml import FakeNvml, Scenario, h100, h100s
from tests.fakes.nvml.topologies import CUBE_MESH, dgx1, hgx, islands, pcie


def handles(count: int) -> list[object]:
    return [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(count)]


def test_a_pair_has_its_own_level_or_the_default(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(h100s(3).with_gpu(0, values={"topology_2": 50, "p2p_2_1": 5}))
    start(fake_nvml)
    a, b, c = handles(3)
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b) == 30
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(a, c) == 50
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(c, a) == 30
    assert pynvml.nvmlDeviceGetP2PStatus(a, b, 2) == 5
    assert pynvml.nvmlDeviceGetP2PStatus(a, c, 2) == 0


def test_links_to_switches_have_no_address_of_a_gpu(fake_nvml: FakeNvml) -> None:
    """The values are those of a real machine with four H100s."""
    fake_nvml.set(hgx(4))
    start(fake_nvml)
    card = handles(1)[0]
    for link in range(18):
        assert pynvml.nvmlDeviceGetNvLinkState(card, link) == 1
        assert pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(card, link) == 2
        assert pynvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId == "FFFFFFFF:FF:FF.0"
    assert error_of(pynvml.nvmlDeviceGetNvLinkState, card, 18) == 3
    assert error_of(pynvml.nvmlDeviceGetNvLinkState, card, 36) == 2
    assert error_of(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, card, 18) == 3


def test_direct_links_have_the_address_of_their_peer(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(dgx1())
    start(fake_nvml)
    for at, card in enumerate(handles(8)):
        ends = [pynvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId for link in range(6)]
        for peer in range(8):
            count = CUBE_MESH.get((min(at, peer), max(at, peer)), 0)
            assert ends.count(h100(peer).bus_id) == count


@pytest.mark.parametrize(("node", "links"), [(pcie(2), 0), (islands(), 18)])
def test_the_number_of_links_is_a_field_value(
    fake_nvml: FakeNvml, node: Scenario, links: int
) -> None:
    fake_nvml.set(node)
    start(fake_nvml)
    values = pynvml.nvmlDeviceGetFieldValues(handles(1)[0], [91])
    assert values[0].value.uiVal == links


def test_only_a_card_with_a_fabric_state_has_fabric_information(fake_nvml: FakeNvml) -> None:
    values = {"fabric_state": 3, "fabric_clique": 7}
    cluster = "5c3a7a4e-0b1d-4f6e-9a52-2f1d7c0e8b31"
    fake_nvml.set(Scenario(gpus=[h100(0, values=values, fabric_cluster=cluster), h100(1)]))
    start(fake_nvml)
    card, other = handles(2)
    for info, call in (
        (pynvml.c_nvmlGpuFabricInfo_t(), pynvml.nvmlDeviceGetGpuFabricInfo),
        (pynvml.c_nvmlGpuFabricInfo_v2_t(), pynvml.nvmlDeviceGetGpuFabricInfoV),
    ):
        call(card, pynvml.byref(info))
        assert (info.state & 0xFF, info.status, info.cliqueId) == (3, 0, 7)
        assert bytes(ord(c) if isinstance(c, str) else c for c in info.clusterUuid).hex() == (
            cluster.replace("-", "")
        )
        assert error_of(call, other, pynvml.byref(info)) == 3
    wrong = pynvml.c_nvmlGpuFabricInfo_v2_t()
    wrong.version = 1
    assert error_of(pynvml.nvmlDeviceGetGpuFabricInfoV, card, pynvml.byref(wrong)) == 25
