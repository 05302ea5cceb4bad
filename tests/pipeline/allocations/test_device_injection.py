"""Which GPUs a container requests by environment, mounts, device nodes or CDI names."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.allocations.device_injection import Injection, gpu_by_cdi, requested_gpus
from pipeline.model import RawDeviceId

GPU = "GPU-fef8089b-4820-abfc-e83e-94318197576e"
OTHER = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
MIG = "MIG-3f9d8a1c-5b6e-5d0a-9c1e-2b7f6a4d8e10"
OLD_MIG = f"MIG-{GPU}/7/0"
CLAIM = "k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a-gpu-0"
MOUNTS = "/var/run/nvidia-container-devices"


def ids(scheme: str, *texts: str) -> tuple[RawDeviceId, ...]:
    return tuple(RawDeviceId(scheme, text) for text in texts)  # type: ignore[arg-type]


def env(value: str) -> dict[str, str]:
    return {"NVIDIA_VISIBLE_DEVICES": value, "PATH": "/bin"}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("0", ids("visible", "0")),
        ("0,2", ids("visible", "0", "2")),
        ("2,0,2", ids("visible", "2", "0")),
        ("0:1", ids("visible", "0:1")),
        (GPU, ids("visible", GPU)),
        (f"{GPU},{OTHER}", ids("visible", GPU, OTHER)),
        (f" {GPU} , {OTHER},", ids("visible", GPU, OTHER)),
        (MIG, ids("visible", MIG)),
        (OLD_MIG, ids("visible", OLD_MIG)),
        ("nvidia.com/gpu=0", ids("cdi", "nvidia.com/gpu=0")),
        (f"runtime.nvidia.com/gpu={GPU}", ids("cdi", f"runtime.nvidia.com/gpu={GPU}")),
        (f"{GPU},nvidia.com/gpu=1", (*ids("visible", GPU), *ids("cdi", "nvidia.com/gpu=1"))),
        (f"{GPU},nvidia.com/imex-channel=0", ids("visible", GPU)),
        ("no-gpu-has-3GiB-to-run", ids("visible", "no-gpu-has-3GiB-to-run")),
    ],
)
def test_the_environment_requests_gpus(value: str, named: tuple[RawDeviceId, ...]) -> None:
    assert requested_gpus(env=env(value)) == Injection("env", named)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        ",",
        "all",
        "none",
        "void",
        f"{GPU},all",
        f"void,{GPU}",
        f"{GPU},none",
        "runtime.nvidia.com/gpu=all",
        "management.nvidia.com/gpu=all",
        "nvidia.com/imex-channel=0",
        "=",
        MOUNTS,
    ],
)
def test_other_values_of_the_environment_request_no_gpu(value: str) -> None:
    assert requested_gpus(env=env(value)) is None


def test_other_variables_are_ignored() -> None:
    assert requested_gpus(env={"CUDA_VISIBLE_DEVICES": "0"}) is None


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        ([f"{MOUNTS}/{GPU}"], ids("visible", GPU)),
        ([f"{MOUNTS}/{GPU}", f"{MOUNTS}/{OTHER}"], ids("visible", GPU, OTHER)),
        ([f"{MOUNTS}/0", f"{MOUNTS}/1:2"], ids("visible", "0", "1:2")),
        ([f"{MOUNTS}/{OLD_MIG}"], ids("visible", OLD_MIG)),
        ([f"{MOUNTS}/cdi/nvidia.com/gpu/0"], ids("cdi", "nvidia.com/gpu=0")),
        ([f"{MOUNTS}/cdi/nvidia.com/gpu={GPU}"], ids("cdi", f"nvidia.com/gpu={GPU}")),
        ([f"{MOUNTS}/imex/0", f"{MOUNTS}/{GPU}", "/data"], ids("visible", GPU)),
    ],
)
def test_mounts_request_gpus(paths: list[str], named: tuple[RawDeviceId, ...]) -> None:
    assert requested_gpus(env=env(MOUNTS), mounts=paths) == Injection("mounts", named)


@pytest.mark.parametrize(
    "path",
    [
        MOUNTS,
        f"{MOUNTS}/",
        f"{MOUNTS}/all",
        f"{MOUNTS}/imex/3",
        f"{MOUNTS}/cdi",
        f"{MOUNTS}/cdi/nvidia.com/nvswitch/0",
        f"{MOUNTS}/cdi/nvidia.com",
        f"/elsewhere{MOUNTS}/{GPU}",
        f"{MOUNTS}-not/{GPU}",
        "",
    ],
)
def test_other_mounts_request_no_gpu(path: str) -> None:
    assert requested_gpus(env=env(MOUNTS), mounts=[path]) is None


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        (["/dev/nvidia0"], ids("minor", "0")),
        (["/dev/nvidia12", "/dev/nvidia3"], ids("minor", "12", "3")),
        (["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1", "/dev/fuse"], ids("minor", "1")),
    ],
)
def test_device_nodes_request_gpus(paths: list[str], named: tuple[RawDeviceId, ...]) -> None:
    assert requested_gpus(env={}, nodes=paths) == Injection("nodes", named)


@pytest.mark.parametrize(
    "path",
    [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps-imex-channels/channel0",
        "/dev/nvidia-nvswitch0",
        "/dev/nvidia",
        "/dev/nvidia0/x",
        "/dev/dri/card0",
        "/host/dev/nvidia0",
    ],
)
def test_other_device_nodes_request_no_gpu(path: str) -> None:
    assert requested_gpus(env={}, nodes=[path]) is None


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=0:1",
        "nvidia.com/gpu=gpu0",
        "nvidia.com/gpu=mig0:1",
        f"nvidia.com/gpu={GPU}",
        f"nvidia.com/gpu={MIG}",
        "runtime.nvidia.com/gpu=1",
        "gpus.example.com/gpu=0",
        CLAIM,
    ],
)
def test_cdi_names_request_gpus(name: str) -> None:
    assert gpu_by_cdi(name) == RawDeviceId("cdi", name)
    assert requested_gpus(env={}, cdi=[name]) == Injection("cdi", ids("cdi", name))


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu=all",
        "runtime.nvidia.com/gpu=all",
        "management.nvidia.com/gpu=all",
        "management.nvidia.com/gpu=0",
        "nvidia.com/imex-channel=0",
        "nvidia.com/gds=all",
        "nvidia.com/mofed=all",
        "nvidia.com/gdrcopy=all",
        "nvidia.com/nvswitch=0",
        "k8s.compute-domain.nvidia.com/claim=dab5ab50-channel-0",
        "example.com/claim=0",
        "nvidia.com/gpu=",
        "nvidia.com/gpu",
        "gpu=0",
        "/gpu=0",
        "nvidia.com/gpu=-0",
        "nvidia.com/gpu=0\n",
        "",
    ],
)
def test_cdi_names_of_other_devices_request_no_gpu(name: str) -> None:
    assert gpu_by_cdi(name) is None


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"cdi.k8s.io/nvidia-device-plugin_1": f"nvidia.com/gpu={GPU}"}, [f"nvidia.com/gpu={GPU}"]),
        ({"nvidia.cdi.k8s.io/x": "nvidia.com/gpu=0"}, ["nvidia.com/gpu=0"]),
        (
            {"cdi.k8s.io/a": "nvidia.com/gpu=1, nvidia.com/gpu=0,nvidia.com/gds=all"},
            ["nvidia.com/gpu=1", "nvidia.com/gpu=0"],
        ),
        (
            {"cdi.k8s.io/b": "nvidia.com/gpu=1", "cdi.k8s.io/a": "nvidia.com/gpu=0"},
            ["nvidia.com/gpu=0", "nvidia.com/gpu=1"],
        ),
    ],
)
def test_cdi_annotations_request_gpus(annotations: Mapping[str, str], named: list[str]) -> None:
    assert requested_gpus(env={}, annotations=annotations) == Injection("cdi", ids("cdi", *named))


@pytest.mark.parametrize("key", ["cdi.k8s.io", "example.com/cdi", "x.cdi.k8s.io/a", ""])
def test_other_annotations_are_ignored(key: str) -> None:
    assert requested_gpus(env={}, annotations={key: "nvidia.com/gpu=0"}) is None


def test_the_strongest_method_counts() -> None:
    settings = {
        "cdi": ["nvidia.com/gpu=3"],
        "mounts": [f"{MOUNTS}/2"],
        "nodes": ["/dev/nvidia0"],
    }
    order = []
    for setting in ("cdi", "mounts", "env", "nodes"):
        found = requested_gpus(env=env("1") if setting != "nodes" else {}, **settings)  # type: ignore[arg-type]
        assert found is not None
        order.append((found.method, found.devices[0].text))
        settings.pop(setting, None)
    assert order == [("cdi", "nvidia.com/gpu=3"), ("mounts", "2"), ("env", "1"), ("nodes", "0")]


def test_a_method_without_gpus_is_skipped() -> None:
    found = requested_gpus(env=env(GPU), cdi=["nvidia.com/gds=all"], mounts=["/data"])
    assert found == Injection("env", ids("visible", GPU))


def test_a_container_without_any_of_these_requests_no_gpu() -> None:
    assert requested_gpus(env={}) is None


@given(st.lists(st.text(max_size=60), max_size=6), st.text(max_size=60))
def test_any_text_is_accepted(texts: list[str], text: str) -> None:
    paths = [f"{MOUNTS}/{each}" for each in texts]
    annotations = {f"cdi.k8s.io/{text}": ",".join(texts)}
    for found in (
        requested_gpus(
            env=env(text), mounts=paths, nodes=texts, cdi=texts, annotations=annotations
        ),
        requested_gpus(env=env(",".join(texts))),
    ):
        assert found is None or all(device.text for device in found.devices)
