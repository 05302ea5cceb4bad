"""Which extended resources are GPUs of the node's driver: by their names and their device ids."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.allocations.gpu_resources import DEFAULT_RESOURCES, GpuNames, GpuResources

UUID = "fef8089b-4820-abfc-e83e-94318197576e"
GPU, MIG = f"GPU-{UUID}", f"MIG-{UUID}"
NIC, IOMMU = "0000:0c:00.2", "57"

DEVICES: list[tuple[str, list[str], bool]] = [
    # GPUs of NVIDIA's device plugin, under its own names and under names of administrators.
    ("nvidia.com/gpu", [GPU], True),
    ("nvidia.com/gpu.shared", [f"{GPU}::3"], True),
    ("nvidia.com/mig-1g.10gb", [MIG], True),
    ("nvidia.com/a100", [GPU], True),
    ("nvidia.com/rtx-6000", [f"{GPU}::0", f"{GPU}::1"], True),
    ("nvidia.com/small", ["MIG-GPU-x/1/0"], True),
    ("nvidia.com/gpu", ["nvidia0/gi1"], True),
    # GPUs of schedulers.
    ("aliyun.com/gpu-mem", [f"{GPU}-_-7"], True),
    ("volcano.sh/vgpu-memory", [f"{UUID}-memory-9"], True),
    ("example.com/gpu-share", ["slot-7"], True),
    ("nvidia.com/gpu", ["7"], True),
    # Network cards: virtual functions, subfunctions and shared devices.
    ("nvidia.com/hostdev", [NIC], False),
    ("nvidia.com/sriov_rdma_vf", ["0000:0c:00.2", "0000:0c:00.3"], False),
    ("nvidia.com/mlnx_sf", ["mlx5_core.sf.2"], False),
    ("nvidia.com/rdma_shared_device_a", ["0", "1"], False),
    ("nvidia.com/gpu_fabric_nic", [NIC], False),
    ("rdma/hca", ["mlx5"], False),
    # Devices of virtual machines: passthrough GPUs and vGPUs.
    ("nvidia.com/GA102GL_A10", [IOMMU], False),
    ("nvidia.com/GA102GL_A10", ["0000:3b:00.0"], False),
    ("nvidia.com/NVIDIA_A10-4Q", [UUID], False),
    ("nvidia.com/pgpu", [IOMMU], False),
    ("nvidia.com/nvswitch", ["3"], False),
    ("nvidia.com/imex-channel", ["channel-0"], False),
    # GPUs of other vendors.
    ("amd.com/gpu", ["0000:05:00.0"], False),
    ("gpu.intel.com/i915", ["card0-0"], False),
    ("intel.com/gpu-shared", ["card1"], False),
    ("metax-tech.com/vgpu", [GPU], False),
]


@pytest.mark.parametrize(("resource", "ids", "expected"), DEVICES)
def test_ids_and_name_decide_which_devices_are_gpus(
    resource: str, ids: list[str], expected: bool
) -> None:
    resources = GpuResources()
    found = resources.can_be_gpus(resource) and resources.are_gpus(resource, ids)
    assert found is expected


@pytest.mark.parametrize(
    ("patterns", "resource", "ids", "expected"),
    [
        # A pattern of the user is an answer, whatever the ids are.
        (["nvidia.com/nodes"], "nvidia.com/nodes", ["a"], True),
        (["nvidia.com/*", "*/*gpu*", "nvidia.com/nodes"], "nvidia.com/nodes", ["a"], True),
        (["example.com/*"], "example.com/fast", [NIC], True),
        (["amd.com/gpu"], "amd.com/gpu", [NIC], True),
        (["example.com/*"], "nvidia.com/gpu", [GPU], False),
        # An exclusion too. Alone, it applies to the default.
        (["!nvidia.com/a100"], "nvidia.com/a100", [GPU], False),
        (["!nvidia.com/a100"], "nvidia.com/gpu", [GPU], True),
        (["example.com/*", "!example.com/n*"], "example.com/nic", ["a"], False),
        (["example.com/*", "!example.com/n*"], "example.com/gpu", ["a"], True),
        (["example.com/*", "!example.com/n*"], "nvidia.com/gpu", [GPU], False),
    ],
)
def test_the_configuration_takes_precedence(
    patterns: list[str], resource: str, ids: list[str], expected: bool
) -> None:
    resources = GpuResources(patterns)
    found = resources.can_be_gpus(resource) and resources.are_gpus(resource, ids)
    assert found is expected


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("gpu.nvidia.com", True),
        ("gpu.example.com", True),
        ("compute-domain.nvidia.com", False),
        ("gpu.amd.com", False),
        ("gpu.intel.com", False),
    ],
)
def test_drivers_of_other_vendors_have_no_gpus_of_nvidia(driver: str, expected: bool) -> None:
    assert GpuNames(("*gpu*",), ("*gpu*",))(driver) is expected


def messages(
    caplog: pytest.LogCaptureFixture, resource: str, ids: list[str]
) -> list[tuple[int, str]]:
    caplog.set_level(logging.INFO)
    resources = GpuResources(DEFAULT_RESOURCES, logging.getLogger("test"))
    for _ in range(3):
        resources.are_gpus(resource, ids)
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_an_unknown_resource_is_named_once_with_both_settings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [(level, text)] = messages(caplog, "nvidia.com/mlnx_sf", ["mlx5_core.sf.2"])
    assert level == logging.WARNING
    assert text.startswith("resource nvidia.com/mlnx_sf: ids such as 'mlx5_core.sf.2' are not ids ")
    assert '"nvidia.com/mlnx_sf" to the option resources; if not, add "!nvidia.com/mlnx_sf"' in text


def test_a_resource_of_other_devices_is_named_once_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [(level, text)] = messages(caplog, "nvidia.com/hostdev", [NIC])
    assert level == logging.INFO
    assert text.startswith("resource nvidia.com/hostdev: ids such as '0000:0c:00.2' are PCI devi")


def test_gpus_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert messages(caplog, "nvidia.com/a100", [GPU]) == []


@given(st.lists(st.text(max_size=40), max_size=5), st.sampled_from([GPU, MIG, f"{GPU}-_-1"]))
def test_any_resource_of_nvidia_with_an_id_of_a_gpu_is_used(others: list[str], gpu: str) -> None:
    assert GpuResources().are_gpus("nvidia.com/anything", [*others, gpu])


@given(st.text(max_size=60), st.lists(st.text(max_size=40), max_size=3))
def test_any_name_and_ids_are_judged(name: str, ids: list[str]) -> None:
    resources = GpuResources()
    assert resources.are_gpus(name, ids) in (True, False)
