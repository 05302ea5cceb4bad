"""Which device an id means: every form in use, and that no other text means a device."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.join import device_index
from pipeline.join.device_index import DeviceIndex, ResolvedDevice
from pipeline.model import Device, RawDeviceId
from pipeline.model.claims import Scheme
from tests.support.nodes import gpu, mig

# The indices of the GPUs run against their minor numbers. GPU 1 is divided into MIG instances whose
# GI, CI and NVML index differ.
GPUS = [gpu(0, minor=3), gpu(1, minor=2), gpu(2, minor=1), gpu(3, minor=0)]


def mig_instance(gi: int, ci: int, index: int) -> Device:
    device = mig(GPUS[1], gi, ci)
    assert device.mig is not None
    return replace(device, mig=replace(device.mig, index=index))


SLICES = [
    mig_instance(5, 0, 0),
    mig_instance(7, 0, 1),
    mig_instance(9, 0, 2),
    mig_instance(9, 1, 3),
]
DEVICES = {
    **{f"gpu {device.index}": device.uuid for device in GPUS},
    **{f"slice {number}": device.uuid for number, device in enumerate(SLICES)},
}
NAMES = {uuid: name for name, uuid in DEVICES.items()}
G0, G1, G2, G3 = (device.uuid for device in GPUS)
S0, S1, S2, S3 = (device.uuid for device in SLICES)
STRANGER = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
CLAIM = "dab5ab50-d59a-42a6-af16-cfd4628c0f7a"
ALIASES = {
    RawDeviceId("dra", "gpu.nvidia.com/node-1/gpu-0"): G3,
    RawDeviceId("dra", "gpu.nvidia.com/node-1/gpu-2-mig-1g10gb-19-4"): S1,
    RawDeviceId("dra", "gpu.nvidia.com/node-1/gpu-9"): STRANGER,
    RawDeviceId("dra", "gpu.example.com/pool/gpu-0"): G0,
    RawDeviceId("cdi", "example.com/card=left"): G2,
}
INDEX = DeviceIndex([*GPUS, *SLICES], ALIASES)


def resolved_device(scheme: str, text: str) -> str:
    found = INDEX.resolve(RawDeviceId(scheme, text))  # type: ignore[arg-type]
    return "none" if found is None else NAMES[found.uuid]


@pytest.mark.parametrize(
    ("scheme", "text", "device"),
    [
        ("uuid", G0, "gpu 0"),
        ("uuid", G0.upper(), "gpu 0"),
        ("uuid", S0, "slice 0"),
        ("uuid", S0.upper(), "slice 0"),
        ("uuid", f"MIG-{G1}/5/0", "slice 0"),
        ("uuid", f"MIG-{G1}/9/0", "slice 2"),
        ("uuid", f"MIG-{G1}/9/1", "slice 3"),
        ("uuid", f"MIG-{G1}/9/1".upper(), "slice 3"),
        ("uuid", f"MIG-{G1}/9/2", "none"),
        ("uuid", f"MIG-{G0}/9/0", "none"),
        ("uuid", f"MIG-{STRANGER}/9/0", "none"),
        ("uuid", STRANGER, "none"),
        ("uuid", G0.removeprefix("GPU-"), "none"),
        ("uuid", "0", "none"),
        ("uuid", "nvidia0", "none"),
        ("uuid", f"{G0}::0", "gpu 0"),
        ("uuid", f"{G0}/vgpu3", "gpu 0"),
        ("visible", f"{G0}::0", "gpu 0"),
        ("minor", "0", "gpu 3"),
        ("minor", "3", "gpu 0"),
        ("minor", "4", "none"),
        ("minor", "-1", "none"),
        ("minor", "00", "none"),
        ("minor", "0:1", "none"),
        ("minor", G0, "none"),
        ("index", "0", "gpu 0"),
        ("index", "3", "gpu 3"),
        ("index", "1", "gpu 1"),
        ("index", "1:0", "slice 0"),
        ("index", "1:1", "slice 1"),
        ("index", "1:3", "slice 3"),
        ("index", "1:4", "none"),
        ("index", "0:0", "none"),
        ("index", "2:0", "none"),
        ("index", "1:", "none"),
        ("index", ":1", "none"),
        ("visible", "0", "gpu 0"),
        ("visible", "1:2", "slice 2"),
        ("visible", G2, "gpu 2"),
        ("visible", S2.upper(), "slice 2"),
        ("visible", f"MIG-{G1}/7/0", "slice 1"),
        ("visible", "nvidia.com/gpu=0", "gpu 0"),
        ("visible", "runtime.nvidia.com/gpu=1:1", "slice 1"),
        ("visible", "all", "none"),
        ("visible", "none", "none"),
        ("visible", "void", "none"),
        ("visible", "", "none"),
        ("visible", "/var/run/nvidia-container-devices", "none"),
        ("visible", "no-gpu-has-3GiB-to-run", "none"),
        ("visible", "runtime.nvidia.com/gpu=all", "none"),
        ("cdi", "nvidia.com/gpu=0", "gpu 0"),
        ("cdi", "nvidia.com/gpu=1:3", "slice 3"),
        ("cdi", "nvidia.com/gpu=gpu3", "gpu 3"),
        ("cdi", "nvidia.com/gpu=mig1:0", "slice 0"),
        ("cdi", "nvidia.com/gpu=mig1", "none"),
        ("cdi", "nvidia.com/gpu=gpu1:0", "none"),
        ("cdi", f"nvidia.com/gpu={G1}", "gpu 1"),
        ("cdi", f"NVIDIA.COM/GPU={G1}".upper(), "gpu 1"),
        ("cdi", f"nvidia.com/gpu={S1}", "slice 1"),
        ("cdi", f"k8s.device-plugin.nvidia.com/gpu={S1}", "slice 1"),
        ("cdi", "k8s.device-plugin.nvidia.com/gpu=2", "gpu 2"),
        ("cdi", "runtime.nvidia.com/gpu=2", "gpu 2"),
        ("cdi", "nvidia.com/gpu=all", "none"),
        ("cdi", "nvidia.com/gpu=", "none"),
        ("cdi", "nvidia.com/gpu=4", "none"),
        ("cdi", "management.nvidia.com/gpu=all", "none"),
        ("cdi", "management.nvidia.com/gpu=0", "none"),
        ("cdi", f"management.nvidia.com/gpu={G0}", "none"),
        ("cdi", "nvidia.com/imex-channel=0", "none"),
        ("cdi", "nvidia.com/gds=all", "none"),
        ("cdi", "nvidia.com/mofed=0", "none"),
        ("cdi", "nvidia.com/nvswitch=0", "none"),
        ("cdi", "nvidia.com/pgpu=0", "none"),
        ("cdi", "amd.com/gpu=0", "none"),
        ("cdi", "notnvidia.com/gpu=0", "none"),
        ("cdi", "example.com/card=left", "gpu 2"),
        ("cdi", "example.com/card=right", "none"),
        ("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-0", "gpu 3"),
        ("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-1", "gpu 2"),
        ("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-2-mig-1g10gb-19-4", "slice 1"),
        ("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-2-mig-1g10gb-19-5", "none"),
        ("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-9", "none"),
        ("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-1", "none"),
        ("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-vfio-1", "none"),
        ("cdi", "k8s.gpu.nvidia.com/claim=gpu-1", "none"),
        ("cdi", "0", "none"),
        ("dra", "gpu.nvidia.com/node-1/gpu-0", "gpu 3"),
        ("dra", "gpu.nvidia.com/node-1/gpu-2-mig-1g10gb-19-4", "slice 1"),
        ("dra", "gpu.example.com/pool/gpu-0", "gpu 0"),
        ("dra", "gpu.nvidia.com/node-1/gpu-1", "none"),
        ("dra", "gpu.nvidia.com/node-2/gpu-0", "none"),
        ("dra", "gpu.nvidia.com/node-1/gpu-9", "none"),
        ("dra", G0, "none"),
        ("plugin", G0, "gpu 0"),
        ("plugin", G0.upper(), "gpu 0"),
        ("plugin", S3, "slice 3"),
        ("plugin", f"MIG-{G1}/9/1", "slice 3"),
        ("plugin", f"{G0}::0", "gpu 0"),
        ("plugin", f"{S3}::11", "slice 3"),
        ("plugin", f"MIG-{G1}/9/1::2", "slice 3"),
        ("plugin", f"{G0.upper()}::0", "gpu 0"),
        ("plugin", f"{G2}-0", "gpu 2"),
        ("plugin", f"{G2}-_-15", "gpu 2"),
        ("plugin", f"{G2}-memory-80000", "gpu 2"),
        ("plugin", f"{G2}-core-99".upper(), "gpu 2"),
        ("plugin", f"{STRANGER}-0", "none"),
        ("plugin", f"{S3}-0", "none"),
        ("plugin", f"{G2}-disk-0", "none"),
        ("plugin", f"{G2}-", "none"),
        ("plugin", f"{G2}::", "none"),
        ("plugin", f"{G2}::x", "none"),
        ("plugin", "nvidia0", "gpu 3"),
        ("plugin", "nvidia3", "gpu 0"),
        ("plugin", "nvidia3/vgpu1", "gpu 0"),
        ("plugin", "nvidia2/gi7", "slice 1"),
        ("plugin", "nvidia2/gi7/vgpu0", "slice 1"),
        ("plugin", "NVIDIA2/GI7/VGPU0", "slice 1"),
        # There are two compute instances: the id means none of them.
        ("plugin", "nvidia2/gi9", "none"),
        ("plugin", "nvidia1/gi7", "none"),
        ("plugin", "nvidia4", "none"),
        ("plugin", "nvidia", "none"),
        ("plugin", "nvidiactl", "none"),
        ("plugin", "0", "none"),
        ("plugin", "all", "none"),
        ("plugin", "0000:09:00.0", "none"),
    ],
)
def test_each_form_of_an_id_means_one_device(scheme: str, text: str, device: str) -> None:
    assert resolved_device(scheme, text) == device


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (G0, ResolvedDevice(G0, is_whole_device=True)),
        ("nvidia3", ResolvedDevice(G0, is_whole_device=True)),
        (S1, ResolvedDevice(S1, is_whole_device=True)),
        ("nvidia2/gi7", ResolvedDevice(S1, is_whole_device=True)),
        (f"{G0}::3", ResolvedDevice(G0, replica="3")),
        ("nvidia3/vgpu3", ResolvedDevice(G0, replica="3")),
        (f"{S1}::3", ResolvedDevice(S1, replica="3")),
        (f"{G0}-3", ResolvedDevice(G0, is_placeholder=True)),
        (f"{G0}-_-3", ResolvedDevice(G0, is_placeholder=True)),
        (f"{G0}-memory-3", ResolvedDevice(G0, is_placeholder=True)),
        (f"{G0}-core-3", ResolvedDevice(G0, is_placeholder=True)),
    ],
)
def test_an_id_of_a_plugin_means_a_device_a_replica_or_a_placeholder(
    text: str, kind: ResolvedDevice
) -> None:
    assert INDEX.resolve(RawDeviceId("plugin", text)) == kind


@pytest.mark.parametrize("scheme", ["uuid", "visible", "cdi", "minor", "index"])
def test_ids_of_other_schemes_do_not_show_how_much_of_the_device_is_meant(scheme: Scheme) -> None:
    index = DeviceIndex(GPUS, {RawDeviceId(scheme, "x=1"): G0})
    assert index.resolve(RawDeviceId(scheme, "x=1")) == ResolvedDevice(G0)


def test_a_device_of_a_dra_driver_keeps_the_name_by_which_it_was_found() -> None:
    name = RawDeviceId("dra", "gpu.nvidia.com/node-1/gpu-0")
    index = DeviceIndex(GPUS, {name: G0})
    assert index.resolve(name) == ResolvedDevice(G0, dra_name=name.text)


def test_a_cdi_name_of_a_claim_that_matches_two_devices_means_none() -> None:
    twice = {
        RawDeviceId("dra", "gpu.nvidia.com/a/gpu-0"): G0,
        RawDeviceId("dra", "gpu.nvidia.com/b/gpu-0"): G1,
    }
    index = DeviceIndex(GPUS, twice)
    assert index.resolve(RawDeviceId("cdi", f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-0")) is None


def test_a_number_of_two_devices_means_the_later_one() -> None:
    old, new = gpu(0), replace(gpu(1), index=0, minor=0)
    index = DeviceIndex([old, new])
    assert index.resolve(RawDeviceId("index", "0")) == ResolvedDevice(new.uuid)
    assert index.resolve(RawDeviceId("minor", "0")) == ResolvedDevice(new.uuid)
    assert index.resolve(RawDeviceId("uuid", old.uuid)) == ResolvedDevice(old.uuid)


def test_a_device_without_numbers_is_found_only_by_its_uuid() -> None:
    index = DeviceIndex([Device("GPU-x")])
    assert index.resolve(RawDeviceId("uuid", "gpu-X")) == ResolvedDevice("GPU-x")
    assert index.resolve(RawDeviceId("index", "None")) is None
    assert index.resolve(RawDeviceId("minor", "None")) is None


ARABIC_3 = "\N{ARABIC-INDIC DIGIT THREE}"
PIECES = st.sampled_from(
    [
        *DEVICES.values(),
        CLAIM,
        *"0123/:-=,[] ",
        "::",
        "/vgpu",
        "/gi",
        "nvidia",
        "gpu",
        "mig",
        "MIG-",
        "-_-",
        "-memory-",
        "nvidia.com/gpu=",
        "k8s.gpu.nvidia.com/claim=",
        "gpu.nvidia.com/",
        ARABIC_3,
    ]
)
TEXTS = st.text(max_size=40) | st.lists(PIECES, max_size=6).map("".join)


@given(st.sampled_from(get_args(Scheme)), TEXTS)
@example("plugin", f"MIG-{G1}/{'9' * 5000}/0")
@example("uuid", f"MIG-{G1}/{ARABIC_3}/{ARABIC_3}")
@example("plugin", "nvidia2/gi" + "7" * 5000)
@example("cdi", "nvidia.com/gpu=" + "1" * 5000)
def test_no_text_raises_and_a_text_with_a_uuid_means_no_other_device(
    scheme: Scheme, text: str
) -> None:
    found = INDEX.resolve(RawDeviceId(scheme, text))
    assert found is None or found.uuid in NAMES
    named = [uuid for uuid in NAMES if uuid.lower() in text.lower()]
    if found is not None and named:
        place = next(device for device in [*GPUS, *SLICES] if device.uuid == found.uuid)
        assert {place.uuid, place.gpu_uuid} & set(named)


@given(st.sampled_from(get_args(Scheme)), TEXTS)
def test_the_case_of_letters_does_not_matter(scheme: Scheme, text: str) -> None:
    if text.isascii():
        plain = INDEX.resolve(RawDeviceId(scheme, text))
        assert INDEX.resolve(RawDeviceId(scheme, text.upper())) == plain
        assert INDEX.resolve(RawDeviceId(scheme, text.swapcase())) == plain


def test_the_cache_of_ids_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_index, "_MAX_CACHED", 100)
    index = DeviceIndex(GPUS)
    for number in range(1000):
        assert index.resolve(RawDeviceId("plugin", f"{G0}::{number}")) == ResolvedDevice(
            G0, replica=str(number)
        )
        assert len(index._cache) <= 100
