"""What the doctor says of the kubelet's socket, each fault provoked."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from config.value_types import Duration
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.kubelet_roots import ROOTS, other_roots
from sources.podresources import doctor
from sources.podresources.doctor import examine
from sources.podresources.options import Options
from tests.fakes.kubelet import V1, V1ALPHA1, FakeKubelet, claim, pod
from tests.podgpu.doctor.support import context, free_port, is_bad, of, unix_socket, verdicts, write
from tests.support.kube import ApiServer, Collection, named

GPU = "GPU-fef8089b-4820-abfc-e83e-94318197576e"


async def looked(folder: Path, *sockets: Path, timeout: str = "5s") -> list[Finding]:
    ctx = context(folder / "ctx")
    return await examine(Options(sockets=sockets, timeout=Duration.parse(timeout)), ctx)


@asynccontextmanager
async def kubelet(
    folder: Path, methods: frozenset[str] = V1 | V1ALPHA1
) -> AsyncIterator[FakeKubelet]:
    async with FakeKubelet(folder / "kubelet.sock", methods) as made:
        made.offered = {"nvidia.com/gpu": [GPU], "example.com/nic": ["nic-0"]}
        yield made


async def test_a_healthy_kubelet_is_well_in_all(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.pods = [pod("a", {"nvidia.com/gpu": [GPU]})]
        found = await looked(tmp_path, made.path)
    assert verdicts(found) == {
        "podresources.socket": "ok",
        "podresources.version": "ok",
        "podresources.devices": "ok",
        "podresources.sharing": "ok",
    }
    assert of(found, "podresources.socket").observed == "1 claims by v1 List"
    assert of(found, "podresources.devices").observed == "1 of nvidia.com/gpu"


async def test_a_folder_that_is_not_mounted(tmp_path: Path) -> None:
    found = await looked(tmp_path, tmp_path / "none/kubelet.sock")
    given_out = of(found, "podresources.socket")
    is_bad(given_out, "failure", "it is not mounted", f"mount the folder {tmp_path}/none")
    names_other_roots(given_out)


async def test_a_folder_without_a_socket(tmp_path: Path) -> None:
    found = await looked(tmp_path, tmp_path / "kubelet.sock")
    given_out = of(found, "podresources.socket")
    is_bad(given_out, "failure", "it has no socket", "check that the kubelet runs")
    names_other_roots(given_out)


def names_other_roots(given_out: Finding) -> None:
    """A container sees no other root, so that it has to be named."""
    for root, whose in ROOTS:
        assert f"/{root} of {whose}" in given_out.fix
    assert "kubeletPath=ROOT/pod-resources" in given_out.fix


@pytest.mark.parametrize(("root", "whose"), ROOTS)
def test_the_root_that_is_looked_at_is_not_named_as_another(root: str, whose: str) -> None:
    given_out = other_roots(Path("/", root, "pod-resources/kubelet.sock"))
    assert whose not in given_out
    assert given_out.count("/") > len(ROOTS)


async def test_what_is_no_socket(tmp_path: Path) -> None:
    found = await looked(tmp_path, write(tmp_path / "kubelet.sock"))
    is_bad(of(found, "podresources.socket"), "failure", "is not a socket", "remove it")


OTHERS = [("var/lib/k0s/kubelet", "k0s"), ("var/snap/microk8s/common/var/lib/kubelet", "MicroK8s")]


@pytest.mark.parametrize(("root", "whose"), OTHERS)
async def test_the_socket_of_another_distribution_is_found(
    tmp_path: Path, root: str, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A path of a socket has 107 bytes.
    monkeypatch.chdir(tmp_path)
    ctx = context(tmp_path / "ctx")
    there = ctx.roots.host / root / "pod-resources/kubelet.sock"
    there.parent.mkdir(parents=True)
    monkeypatch.chdir(there.parent)
    with unix_socket(Path("kubelet.sock")):
        found = await examine(Options(sockets=(tmp_path / "kubelet.sock",)), ctx)
    given_out = of(found, "podresources.socket")
    is_bad(given_out, "failure", f"as with {whose}", f"set sockets: [{there}]")


async def test_a_socket_that_may_not_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may use any: that it may not is the call's word here."""
    path = tmp_path / "kubelet.sock"
    with unix_socket(path):
        monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # type: ignore[attr-defined]
        found = await looked(tmp_path, path)
    given_out = of(found, "podresources.socket")
    is_bad(given_out, "failure", f"uid {os.geteuid()}", "run podgpu as root")


async def test_a_socket_where_no_one_listens(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    with unix_socket(path, listens=False):
        found = await looked(tmp_path, path)
    is_bad(of(found, "podresources.socket"), "failure", "is unreachable", "start the kubelet")


async def test_a_kubelet_that_does_not_answer(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.hangs = True
        found = await looked(tmp_path, made.path, timeout="200ms")
    is_bad(of(found, "podresources.socket"), "failure", "did not respond to List", "raise timeout")


async def test_a_kubelet_that_fails(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.error = (grpc.StatusCode.INTERNAL, "checkpoint is corrupt")
        found = await looked(tmp_path, made.path)
    is_bad(of(found, "podresources.socket"), "failure", "checkpoint is corrupt", "journalctl")


async def test_another_server_on_the_socket(tmp_path: Path) -> None:
    async with kubelet(tmp_path, frozenset()) as made:
        found = await looked(tmp_path, made.path)
    given_out = of(found, "podresources.socket")
    is_bad(
        given_out, "failure", "check that it is the kubelet's socket", "the kubelet's own socket"
    )


OLD = [
    (V1ALPHA1, "older than 1.20"),
    (frozenset({"v1/List"}), "older than 1.23"),
]


@pytest.mark.parametrize(("methods", "saw"), OLD)
async def test_a_kubelet_that_is_too_old(tmp_path: Path, methods: frozenset[str], saw: str) -> None:
    async with kubelet(tmp_path, methods) as made:
        found = await looked(tmp_path, made.path)
    assert of(found, "podresources.socket").verdict is Verdict.OK
    is_bad(of(found, "podresources.version"), "warning", saw, "upgrade the kubelet")


async def test_a_device_plugin_that_registered_nothing(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {}
        found = await looked(tmp_path, made.path)
    given_out = of(found, "podresources.devices")
    is_bad(given_out, "warning", "no device plugin has registered", "the device plugin's pod runs")


async def test_a_device_plugin_under_another_name(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {"example.com/card": ["a"]}
        found = await looked(tmp_path, made.path)
    given_out = of(found, "podresources.devices")
    is_bad(given_out, "warning", "but example.com/card", "set resources to the names")


async def test_gpus_by_claims_alone_are_well(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {}
        made.pods = [pod("a", claims=[claim("gpu.nvidia.com/node-1/gpu-0")])]
        found = await looked(tmp_path, made.path)
    assert of(found, "podresources.devices").verdict is Verdict.OK


SLICES = "/apis/resource.k8s.io/v1beta1/resourceslices"
DRIVERS = [("gpu.nvidia.com", "ok"), ("nic.example.com", "warning")]


@pytest.mark.parametrize(("driver", "verdict"), DRIVERS)
async def test_gpus_of_a_dra_driver_that_no_one_has_claimed_yet(
    tmp_path: Path, driver: str, verdict: str
) -> None:
    server = ApiServer({SLICES: Collection()})
    server.paths[SLICES].put(named("s", spec={"nodeName": "node-1", "driver": driver}))
    async with server.serving(), kubelet(tmp_path) as made:
        made.offered = {}
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        text = f"node: node-1\nsources: {{p: {{kind: pods, kubeconfig: {kubeconfig}}}}}\n"
        found = await examine(Options(sockets=(made.path,)), context(tmp_path / "ctx", text))
    given_out = of(found, "podresources.devices")
    assert given_out.verdict.value == verdict, given_out
    asked = [query for path, query in server.requests if path == SLICES]
    assert asked == [{"fieldSelector": "spec.nodeName=node-1"}]


async def test_an_api_server_that_gives_no_slices_leaves_the_warning(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = await free_port()
    async with kubelet(tmp_path) as made:
        made.offered = {}
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        text = f"sources: {{p: {{kind: pods, kubeconfig: {kubeconfig}}}}}\n"
        found = await examine(Options(sockets=(made.path,)), context(tmp_path / "ctx", text))
    assert of(found, "podresources.devices").verdict is Verdict.WARNING


@pytest.mark.parametrize("ids", [[f"{GPU}::0", f"{GPU}::1"], ["nvidia0/vgpu0", "nvidia0/vgpu1"]])
async def test_time_slicing_is_reported_and_no_fault(tmp_path: Path, ids: list[str]) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {"nvidia.com/gpu": ids}
        found = await looked(tmp_path, made.path)
    given_out = of(found, "podresources.sharing")
    assert given_out.verdict is Verdict.OK, "who set it up has meant it"
    assert "time-slicing" in given_out.observed
    assert "podgpu_device_holder_info" in given_out.observed


async def test_each_socket_is_looked_at(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        found = await looked(tmp_path, made.path, tmp_path / "none/proxy.sock")
    sockets = [each.verdict for each in found if each.check == "podresources.socket"]
    assert sockets == [Verdict.OK, Verdict.FAILURE]
