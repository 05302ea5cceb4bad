"""The `podgpu_topology_*` families."""

import pytest

from pipeline.exposition.text_format import Format
from pipeline.model import Snapshot
from tests.pipeline.exposition.pages import SCENES, of, parsed, rendered, renderer
from tests.support.nodes import Node, gpu, uuid_of
from tests.support.topology import busy_node, topology_read

LINKS = "podgpu_topology_link_info"
SIZES = "podgpu_topology_group_gpus"
FREE = "podgpu_topology_group_free_gpus"
LARGEST = "podgpu_topology_largest_free_group_gpus"


def groups(page: bytes, name: str) -> dict[tuple[str, str], float]:
    return {(labels["level"], labels["group"]): value for labels, value in of(parsed(page), name)}


def largest(page: bytes) -> dict[str, float]:
    return {labels["level"]: value for labels, value in of(parsed(page), LARGEST)}


@pytest.mark.parametrize("scene", [name for name in SCENES if name != "topology"])
@pytest.mark.parametrize("form", Format)
def test_without_a_known_topology_there_are_no_topology_series(scene: str, form: Format) -> None:
    assert b"podgpu_topology" not in rendered(SCENES[scene](), form)


def test_each_pair_of_gpus_is_one_series_with_both_uuids() -> None:
    found = of(parsed(rendered(busy_node(4, nvlinks=12).snapshot())), LINKS)
    assert len(found) == 6
    for labels, value in found:
        assert value == 1
        assert labels["uuid_a"] == uuid_of(int(labels["gpu_a"]))
        assert labels["uuid_b"] == uuid_of(int(labels["gpu_b"]))
        assert int(labels["gpu_a"]) < int(labels["gpu_b"])
        assert (labels["level"], labels["nvlinks"], labels["Hostname"]) == ("node", "12", "node-1")


def test_group_sizes_and_free_gpus_per_group() -> None:
    page = rendered(busy_node().snapshot())
    assert groups(page, SIZES) == {
        ("node", "0-3"): 4,
        ("node", "4-7"): 4,
        ("system", "0-7"): 8,
    }
    assert groups(page, FREE) == {
        ("node", "0-3"): 2,
        ("node", "4-7"): 4,
        ("system", "0-7"): 6,
    }
    assert largest(page) == {"single": 1, "multiple": 1, "hostbridge": 1, "node": 4, "system": 6}


def test_nvlink_domains_are_groups_too() -> None:
    page = rendered(busy_node(nvlinks=18).snapshot())
    assert groups(page, SIZES)["nvlink", "0-7"] == 8
    assert groups(page, FREE)["nvlink", "0-7"] == 6
    assert largest(page)["nvlink"] == 6


def test_without_a_source_of_holders_there_are_no_free_gpu_series() -> None:
    node = Node()
    devices = [gpu(at) for at in range(4)]
    node.has(*devices)
    node.say(topology_read(*devices))
    series = parsed(rendered(node.snapshot()))
    assert of(series, SIZES)
    assert not of(series, FREE)
    assert not of(series, LARGEST)


def test_the_page_follows_changes_of_holders_and_gpus() -> None:
    node, page = busy_node(), renderer()

    def shown(snapshot: Snapshot) -> bytes:
        page.show(snapshot)
        return page.body(Format.TEXT)

    assert groups(shown(node.snapshot()), FREE)["system", "0-7"] == 6
    node.podlist()
    assert groups(shown(node.snapshot()), FREE)["system", "0-7"] == 8
    remaining = [gpu(at) for at in range(1, 8)]
    node.has(*remaining)
    node.say(topology_read(*remaining))
    body = shown(node.snapshot())
    assert groups(body, SIZES)["system", "1-7"] == 7
    assert groups(body, FREE)["system", "1-7"] == 7


def test_without_hostname_no_series_has_the_label() -> None:
    found = of(parsed(rendered(busy_node().snapshot(), hostname=False)), FREE)
    assert all("Hostname" not in labels for labels, _ in found)
