"""MIG instances that a DRA driver creates for a ResourceClaim and that have no UUID before."""

from dataclasses import replace

import pytest

from pipeline.model import Device, MigPlace
from tests.pipeline.join.test_dra_name_history import Dra, injected, prepared
from tests.support.nodes import gpu, mig

PARENT = gpu(0)


def placed(gi: int, profile: str, start: int | None, ci: int = 0) -> Device:
    made = mig(PARENT, gi, ci, profile)
    return replace(made, mig=MigPlace(PARENT.uuid, gi, ci, profile, None, start))


ONE, TWO = placed(3, "3g.40gb", 0), placed(1, "3g.40gb", 4)


@pytest.mark.parametrize(
    ("devices", "name", "found"),
    [
        ([ONE, TWO], "gpu-0-mig-3g40gb-9-0", ONE),
        ([ONE, TWO], "gpu-0-mig-3g40gb-9-4", TWO),
        ([placed(3, "1g.10gb", 0)], "gpu-0-mig-3g40gb-9-0", None),
        ([placed(3, "3g.40gb", None)], "gpu-0-mig-3g40gb-9-0", None),
        ([ONE, placed(3, "3g.40gb", 0, ci=1)], "gpu-0-mig-3g40gb-9-0", None),
        ([], "gpu-0-mig-3g40gb-9-0", None),
    ],
)
def test_t16_an_instance_of_a_claim_is_found_by_profile_and_placement(
    devices: list[Device], name: str, found: Device | None
) -> None:
    start = name.rpartition("-")[2]
    node = Dra()
    node.has(PARENT, *devices)
    node.slices({name: f"MIG-{PARENT.uuid}/3g.40gb@{start}"}, 0, 1)
    node.start_pod("py", 10, 11)
    node.prepare(12, prepared("py", name))
    assert node.held() == ({} if found is None else {found.uuid: ["py/main"]})
    # Without published slices, the runtime's name is resolved by the minor number.
    node = Dra()
    node.has(PARENT, *devices)
    node.runtime(injected("py", name))
    assert node.held() == ({} if found is None else {found.uuid: ["py/main"]})


def test_t16_the_next_claim_on_a_placement_holds_the_next_instance() -> None:
    name = "gpu-0-mig-3g40gb-9-0"
    node = Dra()
    node.has(PARENT)
    node.slices({name: f"MIG-{PARENT.uuid}/3g.40gb@0"}, 0, 1)
    node.start_pod("py", 10, 11)
    node.prepare(12, prepared("py", name))
    assert node.held() == {}
    node.has(PARENT, ONE)
    assert node.held() == {ONE.uuid: ["py/main"]}
    node.end_pod("py", 20)
    again = replace(ONE, uuid="MIG-another")
    node.has(PARENT, again)
    node.start_pod("pz", 22, 23)
    node.prepare(24, prepared("pz", name))
    assert node.held() == {"MIG-another": ["pz/main"]}
