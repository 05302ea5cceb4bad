"""Which devices are expected: those that were present and have not been replaced."""

from dataclasses import replace

import pytest

from pipeline.model import Device, DevicesDiscovered
from tests.support.nodes import Node, gpu, mig

A, B = gpu(0), gpu(1)
NEW = replace(gpu(0), uuid="GPU-new")


def known(node: Node) -> dict[str, bool]:
    """Whether each known device is present."""
    return {uuid: found.present for uuid, found in node.snapshot().layout.attributions.items()}


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        pytest.param([[A, B], [B]], {A.uuid: False, B.uuid: True}, id="vanished"),
        pytest.param([[A, B], [NEW, B]], {NEW.uuid: True, B.uuid: True}, id="replaced"),
        pytest.param([[A], [], [NEW]], {NEW.uuid: True}, id="replaced after it was missed"),
        pytest.param([[A], [NEW], []], {NEW.uuid: False}, id="the new one vanished"),
        pytest.param([[A], [NEW], [A]], {A.uuid: True}, id="put back"),
        pytest.param(
            [[A], [replace(NEW, pci_bus_id=A.pci_bus_id.lower())]], {NEW.uuid: True}, id="case"
        ),
        pytest.param(
            [[A, B], [replace(A, pci_bus_id=B.pci_bus_id), replace(B, pci_bus_id=A.pci_bus_id)]],
            {A.uuid: True, B.uuid: True},
            id="changed places",
        ),
        pytest.param(
            [[A, B], [replace(B, pci_bus_id=A.pci_bus_id)]],
            {B.uuid: True},
            id="another known GPU in its place",
        ),
        pytest.param(
            [[replace(A, pci_bus_id="")], [replace(NEW, pci_bus_id="")]],
            {A.uuid: False, NEW.uuid: True},
            id="places unknown",
        ),
        pytest.param(
            [[A], [mig(A, 1)]],
            {A.uuid: False, mig(A, 1).uuid: True},
            id="a MIG instance takes no place",
        ),
    ],
)
def test_missing_devices_are_expected_until_they_are_replaced(
    rounds: list[list[Device]], expected: dict[str, bool]
) -> None:
    node = Node()
    for devices in rounds:
        node.has(*devices)
    assert known(node) == expected


@pytest.mark.parametrize("first", ["one", "two"])
def test_a_gpu_that_one_source_saw_replaced_is_not_expected_by_another(first: str) -> None:
    node = Node()
    for source in ("one", "two"):
        node.say(DevicesDiscovered((A, B)), source, "nvml")
    last = "two" if first == "one" else "one"
    node.say(DevicesDiscovered((NEW, B)), first, "nvml")
    assert known(node) == {A.uuid: True, NEW.uuid: True, B.uuid: True}
    node.say(DevicesDiscovered((B,)), last, "nvml")
    assert known(node) == {NEW.uuid: True, B.uuid: True}
