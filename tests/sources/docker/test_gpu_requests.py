"""The GPUs that a container was started with."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import RawDeviceId
from sources.docker.gpu_requests import ALL, MAX_DEVICES, gpus_of

GPU = [["gpu"]]
UUID = "GPU-5c1d2e3f-0000-4000-8000-000000000001"
MIG = "MIG-5c1d2e3f-0000-4000-8000-000000000001"


def visible(*names: str) -> tuple[RawDeviceId, ...]:
    return tuple(RawDeviceId("visible", name) for name in names)


def requested(**request: Any) -> dict[str, Any]:
    return {"DeviceRequests": [{"Driver": "", "Count": 0, "DeviceIDs": None, **request}]}


def nodes(*paths: str, **host: Any) -> dict[str, Any]:
    return {"Devices": [{"PathOnHost": path, "PathInContainer": path} for path in paths], **host}


HOSTS = {
    # docker run --gpus
    "--gpus all": (requested(Count=-1, Capabilities=GPU), (ALL,)),
    "--gpus 2": (requested(Count=2, Capabilities=GPU), visible("0", "1")),
    '--gpus "device=1,3"': (requested(DeviceIDs=["1", "3"], Capabilities=GPU), visible("1", "3")),
    '--gpus "device=UUID"': (requested(DeviceIDs=[UUID], Capabilities=GPU), visible(UUID)),
    '--gpus "device=MIG"': (
        requested(DeviceIDs=[MIG, "0:1"], Capabilities=GPU),
        visible(MIG, "0:1"),
    ),
    '--gpus "device=all"': (requested(DeviceIDs=["all"], Capabilities=GPU), (ALL,)),
    "Compose": (
        requested(Driver="nvidia", Count=1, Capabilities=[["gpu", "compute", "utility"]]),
        visible("0"),
    ),
    "the driver's name only": (requested(Driver="nvidia", DeviceIDs=["0"]), visible("0")),
    "several requests": (
        {
            "DeviceRequests": [
                {"DeviceIDs": ["0"], "Capabilities": GPU},
                {"DeviceIDs": ["2", "0"], "Capabilities": GPU},
            ]
        },
        visible("0", "2"),
    ),
    "no number": (requested(Capabilities=GPU), ()),
    "monitoring": (requested(Count=-1, Capabilities=[["gpu", "utility"]]), ()),
    "another kind of device": (requested(Count=-1, Capabilities=[["tpu"]]), ()),
    "another driver": (requested(Driver="amd", Count=-1, Capabilities=[["amd"]]), ()),
    # CDI
    "--device nvidia.com/gpu=0": (
        requested(Driver="cdi", DeviceIDs=["nvidia.com/gpu=0"]),
        (RawDeviceId("cdi", "nvidia.com/gpu=0"),),
    ),
    "--device nvidia.com/gpu=all": (
        requested(Driver="cdi", DeviceIDs=["nvidia.com/gpu=all"]),
        (ALL,),
    ),
    "CDI, a network card": (requested(Driver="cdi", DeviceIDs=["mellanox.com/net=0"]), ()),
    "CDI, as a device of Podman": (
        nodes("nvidia.com/gpu=1"),
        (RawDeviceId("cdi", "nvidia.com/gpu=1"),),
    ),
    # device nodes
    "--device /dev/nvidia1": (
        nodes("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"),
        (RawDeviceId("minor", "1"),),
    ),
    "--privileged": (nodes("/dev/nvidia0", Privileged=True), ()),
    "nothing": ({}, ()),
    "null": ({"DeviceRequests": None, "Devices": None}, ()),
}


@pytest.mark.parametrize(("host", "expected"), HOSTS.values(), ids=HOSTS.keys())
def test_gpus_in_the_configuration_of_the_host(
    host: dict[str, Any], expected: tuple[RawDeviceId, ...]
) -> None:
    assert gpus_of(host, {}, "runc") == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (["NVIDIA_VISIBLE_DEVICES=0,2"], visible("0", "2")),
        ([f"NVIDIA_VISIBLE_DEVICES={UUID}"], visible(UUID)),
        (["NVIDIA_VISIBLE_DEVICES=all"], (ALL,)),
        (["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all"], (ALL,)),
        (["NVIDIA_VISIBLE_DEVICES=none"], ()),
        (["NVIDIA_VISIBLE_DEVICES=void"], ()),
        (["NVIDIA_VISIBLE_DEVICES="], ()),
        (["NVIDIA_VISIBLE_DEVICES"], ()),
        (["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"], ()),
        (["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"], (ALL,)),
        ([], ()),
    ],
)
@pytest.mark.parametrize("runtime", ["nvidia", "/usr/bin/nvidia-container-runtime"])
def test_the_variable_counts_with_nvidia_s_runtime(
    env: list[str], expected: tuple[RawDeviceId, ...], runtime: str
) -> None:
    assert gpus_of({}, {"Env": env}, runtime) == expected
    assert gpus_of({}, {"Env": env}, "runc") == ()


@pytest.mark.parametrize("device", ["nvidia.com/gpu=all", "nvidia.com/gpu=1", "/dev/nvidia0"])
def test_a_container_that_only_reads_gpus_holds_none(device: str) -> None:
    """podgpu's own image has this variable; CDI names and nodes have no capability."""
    env = {"Env": ["NVIDIA_DRIVER_CAPABILITIES=utility"]}
    assert gpus_of(nodes(device), env, "runc") == ()
    assert gpus_of(nodes(device), {"Env": ["NVIDIA_DRIVER_CAPABILITIES=all"]}, "runc") != ()


CDI = requested(Driver="cdi", DeviceIDs=["nvidia.com/gpu=0"])


@pytest.mark.parametrize(
    ("host", "capabilities", "holds"),
    [
        (requested(Count=-1, Capabilities=GPU), "utility", False),
        (requested(Count=-1, Capabilities=GPU), "utility,compat32", False),
        (requested(Count=-1, Capabilities=GPU), "compute,utility", True),
        (requested(Count=-1, Capabilities=GPU), "", True),
        (requested(Driver="nvidia", Count=1), "utility", False),
        (CDI, "utility", False),
        (CDI, "all", True),
        # The capabilities of the request replace the variable's.
        (requested(Count=-1, Capabilities=[["gpu", "compute"]]), "utility", True),
        (requested(Count=-1, Capabilities=[["gpu", "utility"]]), "all", False),
        (requested(Count=-1, Capabilities=[["gpu", "utility", "compat32"]]), "", False),
    ],
)
def test_the_variable_counts_for_requests_without_capabilities(
    host: dict[str, Any], capabilities: str, holds: bool
) -> None:
    env = {"Env": [f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"]}
    assert bool(gpus_of(host, env, "runc")) is holds


def test_the_number_of_devices_is_limited() -> None:
    many = [str(number) for number in range(MAX_DEVICES + 50)]
    assert len(gpus_of(requested(DeviceIDs=many, Capabilities=GPU), {}, "runc")) == MAX_DEVICES
    assert len(gpus_of(requested(Count=10**12, Capabilities=GPU), {}, "runc")) == MAX_DEVICES


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Driver", "Count", "DeviceIDs", "Capabilities", "PathOnHost"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(host=st.fixed_dictionaries({"DeviceRequests": JSON, "Devices": JSON}), env=JSON)
def test_any_content_is_read_without_an_error(host: dict[str, Any], env: object) -> None:
    assert len(gpus_of(host, {"Env": env}, "nvidia")) <= MAX_DEVICES
