"""Identifiers of GPUs, pods and the machine are replaced by sample ones of the same form."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.model import (
    NS,
    ClaimsReplaced,
    ContainersReplaced,
    DevicesDiscovered,
    DeviceUse,
    Event,
    GpuProcess,
    PartialRef,
    Pod,
    PodInfo,
    PodsReplaced,
    ProcessesSampled,
    ProcessList,
    ProcessUse,
    RawDeviceId,
    RunningContainer,
    SamplesTaken,
    XidReport,
    XidsReported,
)
from pipeline.model.pods import StringPairs
from tests.demo.inputs import (
    CONTAINER,
    MIG,
    REAL,
    UID,
    Recorded,
    gpus,
    merged,
    of,
    uuid,
    watts,
)
from tests.support.nodes import at, claims, kubelet_claim, reading


def test_gpus_get_consecutive_indexes_and_sample_identifiers(tmp_path: Path) -> None:
    """The same GPU in two recordings is two GPUs."""
    _, found = merged(tmp_path, gpus(), gpus())
    (discovered,) = of(found, DevicesDiscovered)
    assert isinstance(discovered, DevicesDiscovered)
    assert [(one.index, one.minor, one.uuid) for one in discovered.devices] == [
        (0, 0, uuid(0)),
        (1, 1, uuid(1)),
    ]
    buses = [one.pci_bus_id for one in discovered.devices]
    assert buses == ["00000000:18:00.0", "00000000:20:00.0"]
    serials = [dict(one.facts)["serial"] for one in discovered.devices]
    assert serials == ["1650000000000", "1650000000001"]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (RawDeviceId("uuid", REAL), f"{uuid(1)}"),
        (RawDeviceId("plugin", f"{REAL}::3"), f"{uuid(1)}::3"),
        (RawDeviceId("minor", "0"), "1"),
        (RawDeviceId("index", "0:2"), "1:2"),
        (RawDeviceId("visible", "0"), "1"),
        (RawDeviceId("visible", REAL), uuid(1)),
        (RawDeviceId("cdi", "nvidia.com/gpu=0"), "nvidia.com/gpu=1"),
        (RawDeviceId("cdi", f"nvidia.com/gpu={REAL}"), f"nvidia.com/gpu={uuid(1)}"),
        (RawDeviceId("dra", "gpu.nvidia.com/gpu-7/gpu-0"), "gpu.nvidia.com/demo/gpu-0"),
        (RawDeviceId("uuid", MIG), "MIG-00000001-5eed-4a5e-9c0d-000000000007"),
    ],
    ids=str,
)
def test_each_form_of_a_device_id_means_the_same_device(
    tmp_path: Path, device: RawDeviceId, expected: str
) -> None:
    claim = replace(kubelet_claim("train-0"), devices=(device,))
    last = (9.0, watts(9))
    second: Recorded = [*gpus(last), (1, "kubelet", "podresources", claims(claim))]
    _, found = merged(tmp_path, gpus(last), second)
    (event,) = of(found, ClaimsReplaced)
    assert isinstance(event, ClaimsReplaced)
    assert [one.text for one in event.claims[0].devices] == [expected]


def test_nothing_of_the_recorded_machine_is_left(tmp_path: Path) -> None:
    owner = PartialRef(uid=UID, container_id=CONTAINER)
    using = ProcessUse(4321, 7, owner, "compute", 1, None)
    use = DeviceUse(REAL, at(1), None, (using,), 1 << 30, 0, None, None, 6 * NS)
    process = SamplesTaken(
        (
            reading(REAL, "process_memory_used_bytes", 5, attrs=(("pid", "4321"),), when=at(1)),
            reading(REAL, "nvlink_errors", 5, attrs=(("peer_gpu", "0"),), when=at(1)),
        ),
        (ProcessList(REAL, (GpuProcess(4321, "compute", 5),), at(1), NS),),
    )
    started = RunningContainer(
        PartialRef("ml", "a", "main", UID, CONTAINER),
        4321,
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/{CONTAINER}.scope",
        at(-60),
    )
    events: list[tuple[float, str, str, Event]] = [
        *gpus((1, process), (1, ProcessesSampled((use,)))),
        (1, "runtime", "nri", ContainersReplaced((started,), NS)),
        (1, "kernel", "kernel", XidsReported((XidReport("", "0000:3b:00.0", 31, at(1), 4321),))),
        (9, "gpus", "nvml", watts(9)),
    ]
    _, found = merged(tmp_path, events)
    text = gzip.decompress((tmp_path / "merged.gz").read_bytes()).decode()
    for old in (
        REAL[4:],
        UID,
        UID.replace("-", "_"),
        CONTAINER,
        "4321",
        "3b:00",
        "3B:00",
        "gpu-7",
        "165400",
    ):
        assert old not in text, old
    (replaced,) = of(found, ContainersReplaced)
    assert isinstance(replaced, ContainersReplaced)
    (running,) = replaced.containers
    (sampled,) = of(found, ProcessesSampled)
    assert isinstance(sampled, ProcessesSampled)
    ((known,),) = (one.processes for one in sampled.uses)
    # It is still the same process, container and pod.
    assert known.pid == running.pid
    assert known.owner is not None
    assert known.owner.container_id == running.subject.container_id
    assert known.owner.uid == running.subject.uid
    assert known.owner.uid.replace("-", "_") in running.cgroup
    assert known.owner.container_id in running.cgroup
    (xids,) = of(found, XidsReported)
    assert isinstance(xids, XidsReported)
    assert xids.reports[0].pid == running.pid
    assert xids.reports[0].pci_bus_id == "0000:18:00.0"


@pytest.mark.parametrize(
    ("name", "labels", "owner", "expected"),
    [
        ("chat-0", (), "", ((("team", "ml"),), "StatefulSet", "chat")),
        ("shell", (), "", ((("team", "ml"),), "", "")),
        ("task-1", (("a", "b"),), "Job", ((("a", "b"),), "Job", "task")),
    ],
)
def test_pods_without_labels_and_owner_get_some(
    tmp_path: Path, name: str, labels: StringPairs, owner: str, expected: object
) -> None:
    info = PodInfo(UID, "ml", name, owner_kind=owner, owner_name="task" if owner else "")
    pods = PodsReplaced((Pod(replace(info, labels=labels)),), NS)
    _, found = merged(tmp_path, [*gpus((9, watts(9))), (1, "pods", "pods", pods)])
    (event,) = of(found, PodsReplaced)
    assert isinstance(event, PodsReplaced)
    (one,) = (pod.info for pod in event.pods)
    assert (one.labels, one.owner_kind, one.owner_name) == expected
