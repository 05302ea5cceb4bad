"""Tests of the container or job of a process, read from each form of cgroup path."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.host import cgroups
from pipeline.model import PartialRef

UID = "67711498-0b76-435e-8929-2ec772bd35ac"
LOW = UID.replace("-", "_")
STATIC = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
ID = "f3e2d1c0b9a88796" * 4
OTHER = "0123456789abcdef" * 4
SLICES = f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice"

BOTH = {
    # cgroupfs, by quality of service
    "guaranteed": f"0::/kubepods/pod{UID}/{ID}",
    "burstable": f"0::/kubepods/burstable/pod{UID}/{ID}",
    "best effort": f"0::/kubepods/besteffort/pod{UID}/{ID}",
    "version 1": f"4:memory:/kubepods/besteffort/pod{UID}/{ID}",
    "version 1, several controllers": f"3:cpu,cpuacct:/kubepods/pod{UID}/{ID}",
    "CRI-O": f"0::/kubepods/burstable/pod{UID}/crio-{ID}",
    "podman": f"0::/kubepods/pod{UID}/libpod-{ID}",
    # systemd
    "systemd, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope"
    ),
    "systemd, CRI-O": f"0::{SLICES}/crio-{ID}.scope",
    "systemd, docker": f"0::{SLICES}/docker-{ID}.scope",
    "systemd, podman": f"0::{SLICES}/libpod-{ID}.scope",
    "systemd, dashes escaped": (
        f"0::/kubepods.slice/kubepods\\x2dpod{UID.replace('-', chr(92) + 'x2d')}.slice/{ID}"
    ),
    # other roots
    "a kubelet with another root": f"0::/kubelet/kubepods/burstable/pod{UID}/{ID}",
    "kind": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{LOW}.slice/cri-containerd-{ID}.scope"
    ),
    "a node in docker": f"0::/docker/{OTHER}/kubepods/besteffort/pod{UID}/{ID}",
    "a node in docker, by systemd": f"0::/system.slice/docker-{OTHER}.scope{SLICES}/{ID}",
    # a kubelet with systemd, a runtime without
    "separated by colons": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{LOW}.slice:cri-containerd:{ID}"
    ),
    "separated by colons, CRI-O": f"0::/kubepods-pod{LOW}.slice:crio:{ID}",
    "below another cgroup of the runtime": (
        f"4:memory:/process_api/{OTHER[:32]}/kubepods-besteffort-pod{LOW}.slice:cri-containerd:{ID}"
    ),
    # cgroups below the container's
    "systemd in the container": f"0::{SLICES}/cri-containerd-{ID}.scope/init.scope",
    "a service in the container": f"0::/kubepods/pod{UID}/{ID}/system.slice/cron.service",
    "a cgroup of CRI-O below the container": f"0::{SLICES}/crio-{ID}.scope/container",
    "docker in the container": f"0::/kubepods/pod{UID}/{ID}/docker/{OTHER}",
    "a kubelet in the container": (
        f"0::/kubepods/pod{UID}/{ID}/kubepods/pod{uuid.UUID(int=7)}/{OTHER}"
    ),
    # seen from a cgroup namespace
    "another class": f"0::/../../../burstable/pod{UID}/{ID}",
    "another class, by systemd": (
        "0::/../../../kubepods-burstable.slice/"
        f"kubepods-burstable-pod{LOW}.slice/cri-containerd-{ID}.scope"
    ),
    "the same class": f"0::/../../kubepods-besteffort-pod{LOW}.slice/cri-containerd-{ID}.scope",
    "guaranteed from elsewhere": (
        f"0::/../../../kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope"
    ),
    # removed under the process
    "deleted": f"0::/kubepods/pod{UID}/{ID} (deleted)",
    # several lines
    "hybrid, version 2 has only the root": (
        f"9:name=systemd:/kubepods/pod{UID}/{ID}\n4:memory:/kubepods/pod{UID}/{ID}\n0::/\n"
    ),
    "hybrid, all the same": (
        f"9:name=systemd:/kubepods/pod{UID}/{ID}\n0::/kubepods/pod{UID}/{ID}\n"
    ),
    "a controller that stops at the pod": (
        f"9:cpuset:/kubepods/pod{UID}\n4:memory:/kubepods/pod{UID}/{ID}\n"
    ),
    "a controller that isn't used": f"9:rdma:/\n4:memory:/kubepods/pod{UID}/{ID}\n",
}
PARTIAL = {
    "a static pod": (f"0::/kubepods/pod{STATIC}/{ID}", PartialRef(uid=STATIC, container_id=ID)),
    "a static pod, by systemd": (
        f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope",
        PartialRef(uid=STATIC, container_id=ID),
    ),
    "the sandbox": (f"0::/kubepods/pod{UID}/{OTHER}", PartialRef(uid=UID, container_id=OTHER)),
    "no container": (f"0::/kubepods/pod{UID}", PartialRef(uid=UID)),
    "CRI-O's monitor": (f"0::{SLICES}/crio-conmon-{ID}.scope", PartialRef(uid=UID)),
    "a sibling": (f"0::/../cri-containerd-{ID}.scope", PartialRef(container_id=ID)),
    "a sibling, by cgroupfs": (f"0::/../{ID}", PartialRef(container_id=ID)),
    "below a sibling": (f"0::/../crio-{ID}.scope/container", PartialRef(container_id=ID)),
    "the root": ("0::/", PartialRef()),
    "init.scope": ("0::/init.scope", PartialRef()),
    "a service": ("0::/system.slice/nvidia-persistenced.service", PartialRef()),
    "a user": ("0::/user.slice/user-1000.slice/session-3.scope", PartialRef()),
    "a service, seen from a namespace": ("0::/../../../../system.slice/sshd.service", PartialRef()),
    "the root, seen from a namespace": ("0::/../../../..", PartialRef()),
    "a name with pod in it": (f"0::/system.slice/tripod{UID}.service", PartialRef()),
    "a uid that is too short": (f"0::/kubepods/pod{UID[:-1]}/{ID}", PartialRef()),
    "both kinds of dashes": (f"0::/kubepods/pod{UID[:9]}{LOW[9:]}/{ID}", PartialRef()),
    "a container's monitor of podman": (
        f"0::/machine.slice/libpod-conmon-{ID}.scope",
        PartialRef(),
    ),
    "a container of another runtime": (f"0::/default/{ID}", PartialRef()),
    "a folder with the name of a job": ("0::/system.slice/job_7.service", PartialRef()),
    "a job outside of Slurm": ("0::/user.slice/job_7", PartialRef()),
    "Slurm's own daemon": ("0::/system.slice/slurmd.service", PartialRef()),
    "the step daemon": ("0::/system.slice/slurmstepd.scope/system", PartialRef()),
    "nothing": ("", None),
    "no cgroup": ("not a cgroup\n", None),
}


OF_USER = "/user.slice/user-1000.slice/user@1000.service/user.slice"
"""The cgroups of a user's own services and containers: the user makes them, with any name."""

DOCKER = PartialRef(uid=f"docker://{ID}", container_id=ID)
PODMAN = PartialRef(uid=f"podman://{ID}", container_id=ID)
JOB = PartialRef(container_id="slurm://1234")
WITHOUT_PODS = {
    "docker": (f"0::/system.slice/docker-{ID}.scope", DOCKER),
    "docker, by cgroupfs": (f"4:memory:/docker/{ID}", DOCKER),
    "docker, below a cgroup of its own": (f"0::/gpus.slice/docker-{ID}.scope", DOCKER),
    "systemd in a container of docker": (f"0::/docker/{ID}/system.slice/cron.service", DOCKER),
    "docker in docker": (f"0::/docker/{ID}/docker/{OTHER}", DOCKER),
    "docker, seen from a namespace": (f"0::/../../system.slice/docker-{ID}.scope", DOCKER),
    "podman": (f"0::/machine.slice/libpod-{ID}.scope", PODMAN),
    "podman, the container's process": (f"0::/machine.slice/libpod-{ID}.scope/container", PODMAN),
    "podman, by cgroupfs": (f"9:devices:/libpod_parent/libpod-{ID}", PODMAN),
    "podman of a user": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
        PODMAN,
    ),
    "podman, a pod of podman": (
        f"0::/machine.slice/machine-libpod_pod_{OTHER}.slice/libpod-{ID}.scope/container",
        PODMAN,
    ),
    "a job, version 2": ("0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0", JOB),
    "a job of one of several nodes of a machine": (
        "0::/system.slice/n1_slurmstepd.scope/job_1234/step_batch/user/task_special",
        JOB,
    ),
    "a job, version 1": ("4:memory:/slurm/uid_1000/job_1234/step_0/task_0", JOB),
    "a job, version 1, with the node's name": ("4:cpuset:/slurm_n1/uid_1000/job_1234/step_0", JOB),
    "a job, on some controllers only": (
        "9:freezer:/slurm/uid_1000/job_1234/step_0\n4:pids:/system.slice/slurmd.service\n0::/\n",
        JOB,
    ),
    "podman of a user in a job, version 1": (
        f"9:freezer:/slurm/uid_1000/job_1234/step_0\n1:name=systemd:{OF_USER}/libpod-{ID}.scope\n",
        JOB,
    ),
    "a job of Slurm in a container": (f"4:memory:/docker/{ID}/slurm/uid_0/job_1234", DOCKER),
    "podman in a job": (
        f"0::/system.slice/slurmstepd.scope/job_1234/step_0/user/libpod-{ID}.scope",
        JOB,
    ),
}


@pytest.mark.parametrize(("text", "expected"), WITHOUT_PODS.values(), ids=WITHOUT_PODS.keys())
def test_containers_without_pods_and_jobs_are_read(text: str, expected: PartialRef) -> None:
    assert cgroups.container_of(text) == expected


NOT_A_JOB = {
    "of a user": f"0::{OF_USER}/slurmstepd.scope/job_1234",
    "of a user, version 1": f"1:name=systemd:{OF_USER}/slurm/uid_0/job_1234\n0::/\n",
    "of a user, seen from a namespace": f"0::/../..{OF_USER}/slurm/uid_0/job_1234",
    "of a service": "0::/system.slice/web.service/slurm/uid_0/job_1234",
    "of a session": "0::/user.slice/user-1000.slice/session-3.scope/slurm/job_1234",
    "of a folder with another name": "0::/slurmy/uid_0/job_1234",
}


@pytest.mark.parametrize("text", NOT_A_JOB.values(), ids=NOT_A_JOB)
def test_a_cgroup_that_a_user_may_make_is_no_job(text: str) -> None:
    assert cgroups.container_of(text) == PartialRef()


@pytest.mark.parametrize("text", BOTH.values(), ids=BOTH)
def test_a_cgroup_that_a_user_made_is_no_pod(text: str) -> None:
    """It may be a container of a daemon of the user."""
    names = text.splitlines()[0].split(":", 2)[2]
    found = cgroups.container_of(f"0::{OF_USER}{names}")
    assert found is not None
    assert found == PartialRef() or found.kind == "container"


@pytest.mark.parametrize("text", BOTH.values(), ids=BOTH.keys())
def test_pod_uid_and_container_id_are_read(text: str) -> None:
    assert cgroups.container_of(text) == PartialRef(uid=UID, container_id=ID)
    assert cgroups.container_of(text + "\n") == PartialRef(uid=UID, container_id=ID)
    assert cgroups.names_container(text)


@pytest.mark.parametrize(("text", "expected"), PARTIAL.values(), ids=PARTIAL.keys())
def test_a_path_with_less_information_gives_only_that(
    text: str, expected: PartialRef | None
) -> None:
    assert cgroups.container_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/\n", True),
        ("9:cpu:/\n0::/\n", True),
        ("9:cpu:/a\n0::/\n", False),
        ("0::/init.scope\n", False),
        ("0::/..\n", False),
        ("", False),
    ],
)
def test_a_process_is_in_the_root_cgroup_if_all_lines_name_the_root(
    text: str, expected: bool
) -> None:
    assert cgroups.is_root(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"4:memory:/docker/{ID}", True),
        (f"0::/system.slice/docker-{ID}.scope", True),
        ("0::/init.scope", False),
        ("0::/", False),
    ],
)
def test_a_container_without_a_pod_is_recognized(text: str, expected: bool) -> None:
    assert cgroups.names_container(text) is expected


@given(st.text())
def test_no_text_raises_an_error(text: str) -> None:
    cgroups.container_of(text)
    cgroups.container_of(f"0::/{text}")
    cgroups.names_container(text)


@st.composite
def written(draw: st.DrawFn) -> tuple[str, PartialRef]:
    """Draw a cgroup path as a kubelet and a runtime write it, and its pod and container."""
    uid = str(draw(st.uuids()))
    cid = draw(st.from_regex(r"[0-9a-f]{64}", fullmatch=True))
    root = draw(st.sampled_from(["", "/kubelet", f"/docker/{OTHER}", "/../..", "/../../.."]))
    quality = draw(st.sampled_from(["", "burstable", "besteffort"]))
    runtime = draw(st.sampled_from(["cri-containerd", "crio", "docker", "libpod"]))
    below = draw(st.lists(st.sampled_from(["init.scope", "docker", OTHER, "kubepods"]), max_size=3))
    stem = f"kubepods-{quality}" if quality else "kubepods"
    low = uid.replace("-", "_")
    path = draw(
        st.sampled_from(
            [
                f"{root}/kubepods/{quality}/pod{uid}/{cid}".replace("//", "/"),
                f"{root}/{stem}.slice/{stem}-pod{low}.slice/{runtime}-{cid}.scope",
                f"{root}/{stem}-pod{low}.slice:{runtime}:{cid}",
            ]
        )
    )
    return "/".join([path, *below]), PartialRef(uid=uid, container_id=cid)


@given(
    made=written(), others=st.lists(st.sampled_from(["9:cpuset:/", "8:pids:/user.slice", "0::/"]))
)
def test_the_container_is_found_on_any_line(
    made: tuple[str, PartialRef], others: list[str]
) -> None:
    path, expected = made
    for at in range(len(others) + 1):
        lines = [*others[:at], f"5:memory:{path}", *others[at:]]
        assert cgroups.container_of("\n".join(lines)) == expected
