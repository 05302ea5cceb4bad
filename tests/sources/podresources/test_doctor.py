"""The checks of the kubelet's socket."""

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


async def check_sockets(folder: Path, *sockets: Path, timeout: str = "5s") -> list[Finding]:
    ctx = context(folder / "ctx")
    return await examine(Options(sockets=sockets, timeout=Duration.parse(timeout)), ctx)


@asynccontextmanager
async def kubelet(
    folder: Path, methods: frozenset[str] = V1 | V1ALPHA1
) -> AsyncIterator[FakeKubelet]:
    async with FakeKubelet(folder / "kubelet.sock", methods) as made:
        made.offered = {"nvidia.com/gpu": [GPU], "example.com/nic": ["nic-0"]}
        yield made


async def test_all_checks_of_a_healthy_kubelet_are_ok(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.pods = [pod("a", {"nvidia.com/gpu": [GPU]})]
        found = await check_sockets(tmp_path, made.path)
    assert verdicts(found) == {
        "podresources.socket": "ok",
        "podresources.version": "ok",
        "podresources.devices": "ok",
        "podresources.sharing": "ok",
    }
    assert of(found, "podresources.socket").observed == "1 claims by v1 List"
    assert of(found, "podresources.devices").observed == "1 of nvidia.com/gpu"


async def test_a_folder_that_is_not_mounted_is_a_failure(tmp_path: Path) -> None:
    found = await check_sockets(tmp_path, tmp_path / "none/kubelet.sock")
    finding = of(found, "podresources.socket")
    is_bad(finding, "failure", "it is not mounted", f"mount the folder {tmp_path}/none")
    assert_names_other_roots(finding)


async def test_a_folder_without_a_socket_is_a_failure(tmp_path: Path) -> None:
    found = await check_sockets(tmp_path, tmp_path / "kubelet.sock")
    finding = of(found, "podresources.socket")
    is_bad(finding, "failure", "it has no socket", "check that the kubelet runs")
    assert_names_other_roots(finding)


def assert_names_other_roots(finding: Finding) -> None:
    """Other kubelet roots are not visible in a container, so the fix names them."""
    for root, distribution in ROOTS:
        assert f"/{root} of {distribution}" in finding.fix
    assert "kubeletPath=ROOT/pod-resources" in finding.fix


@pytest.mark.parametrize(("root", "distribution"), ROOTS)
def test_the_configured_root_is_not_among_the_other_roots(root: str, distribution: str) -> None:
    text = other_roots(Path("/", root, "pod-resources/kubelet.sock"))
    assert distribution not in text
    assert text.count("/") > len(ROOTS)


async def test_a_file_that_is_no_socket_is_a_failure(tmp_path: Path) -> None:
    found = await check_sockets(tmp_path, write(tmp_path / "kubelet.sock"))
    is_bad(of(found, "podresources.socket"), "failure", "is not a socket", "remove it")


OTHERS = [("var/lib/k0s/kubelet", "k0s"), ("var/snap/microk8s/common/var/lib/kubelet", "MicroK8s")]


@pytest.mark.parametrize(("root", "distribution"), OTHERS)
async def test_the_socket_of_another_distribution_is_suggested(
    tmp_path: Path, root: str, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path of a socket is limited to 107 bytes.
    monkeypatch.chdir(tmp_path)
    ctx = context(tmp_path / "ctx")
    socket_path = ctx.roots.host / root / "pod-resources/kubelet.sock"
    socket_path.parent.mkdir(parents=True)
    monkeypatch.chdir(socket_path.parent)
    with unix_socket(Path("kubelet.sock")):
        found = await examine(Options(sockets=(tmp_path / "kubelet.sock",)), ctx)
    finding = of(found, "podresources.socket")
    is_bad(finding, "failure", f"as with {distribution}", f"set sockets: [{socket_path}]")


async def test_a_socket_without_permission_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root can use each socket, so the call is replaced."""
    path = tmp_path / "kubelet.sock"
    with unix_socket(path):
        monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # type: ignore[attr-defined]
        found = await check_sockets(tmp_path, path)
    finding = of(found, "podresources.socket")
    is_bad(finding, "failure", f"uid {os.geteuid()}", "run podgpu as root")


async def test_a_socket_without_a_listener_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    with unix_socket(path, listens=False):
        found = await check_sockets(tmp_path, path)
    is_bad(of(found, "podresources.socket"), "failure", "is unreachable", "start the kubelet")


async def test_a_kubelet_that_does_not_respond_is_a_failure(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.hangs = True
        found = await check_sockets(tmp_path, made.path, timeout="200ms")
    is_bad(of(found, "podresources.socket"), "failure", "did not respond to List", "raise timeout")


async def test_an_error_response_is_a_failure(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.error = (grpc.StatusCode.INTERNAL, "checkpoint is corrupt")
        found = await check_sockets(tmp_path, made.path)
    is_bad(of(found, "podresources.socket"), "failure", "checkpoint is corrupt", "journalctl")


async def test_another_server_on_the_socket_is_a_failure(tmp_path: Path) -> None:
    async with kubelet(tmp_path, frozenset()) as made:
        found = await check_sockets(tmp_path, made.path)
    finding = of(found, "podresources.socket")
    is_bad(finding, "failure", "check that it is the kubelet's socket", "the kubelet's own socket")


OLD = [
    (V1ALPHA1, "older than 1.20"),
    (frozenset({"v1/List"}), "older than 1.23"),
]


@pytest.mark.parametrize(("methods", "observed"), OLD)
async def test_a_kubelet_that_is_too_old_is_a_warning(
    tmp_path: Path, methods: frozenset[str], observed: str
) -> None:
    async with kubelet(tmp_path, methods) as made:
        found = await check_sockets(tmp_path, made.path)
    assert of(found, "podresources.socket").verdict is Verdict.OK
    is_bad(of(found, "podresources.version"), "warning", observed, "upgrade the kubelet")


async def test_a_kubelet_without_device_plugins_is_a_warning(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {}
        found = await check_sockets(tmp_path, made.path)
    finding = of(found, "podresources.devices")
    is_bad(finding, "warning", "no device plugin has registered", "the device plugin's pod runs")


async def test_a_device_plugin_with_an_unknown_resource_is_a_warning(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {"example.com/card": ["a"]}
        found = await check_sockets(tmp_path, made.path)
    finding = of(found, "podresources.devices")
    is_bad(finding, "warning", "but example.com/card", "set resources to the names")


async def test_gpus_of_resource_claims_are_ok_without_a_device_plugin(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {}
        made.pods = [pod("a", claims=[claim("gpu.nvidia.com/node-1/gpu-0")])]
        found = await check_sockets(tmp_path, made.path)
    assert of(found, "podresources.devices").verdict is Verdict.OK


SLICES = "/apis/resource.k8s.io/v1beta1/resourceslices"
DRIVERS = [("gpu.nvidia.com", "ok"), ("nic.example.com", "warning")]


@pytest.mark.parametrize(("driver", "verdict"), DRIVERS)
async def test_gpus_of_a_dra_driver_are_found_before_they_are_claimed(
    tmp_path: Path, driver: str, verdict: str
) -> None:
    server = ApiServer({SLICES: Collection()})
    server.paths[SLICES].put(named("s", spec={"nodeName": "node-1", "driver": driver}))
    async with server.serving(), kubelet(tmp_path) as made:
        made.offered = {}
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        text = f"node: node-1\nsources: {{p: {{kind: pods, kubeconfig: {kubeconfig}}}}}\n"
        found = await examine(Options(sockets=(made.path,)), context(tmp_path / "ctx", text))
    finding = of(found, "podresources.devices")
    assert finding.verdict.value == verdict, finding
    requested = [query for path, query in server.requests if path == SLICES]
    assert requested == [{"fieldSelector": "spec.nodeName=node-1"}]


async def test_without_slices_of_the_api_server_the_warning_stays(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = free_port()
    async with kubelet(tmp_path) as made:
        made.offered = {}
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        text = f"sources: {{p: {{kind: pods, kubeconfig: {kubeconfig}}}}}\n"
        found = await examine(Options(sockets=(made.path,)), context(tmp_path / "ctx", text))
    assert of(found, "podresources.devices").verdict is Verdict.WARNING


@pytest.mark.parametrize("ids", [[f"{GPU}::0", f"{GPU}::1"], ["nvidia0/vgpu0", "nvidia0/vgpu1"]])
async def test_time_slicing_is_reported_as_ok(tmp_path: Path, ids: list[str]) -> None:
    async with kubelet(tmp_path) as made:
        made.offered = {"nvidia.com/gpu": ids}
        found = await check_sockets(tmp_path, made.path)
    finding = of(found, "podresources.sharing")
    assert finding.verdict is Verdict.OK, "time slicing is configured on purpose"
    assert "time-slicing" in finding.observed
    assert "podgpu_device_holder_info" in finding.observed


async def test_each_socket_is_checked(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as made:
        found = await check_sockets(tmp_path, made.path, tmp_path / "none/proxy.sock")
    sockets = [each.verdict for each in found if each.check == "podresources.socket"]
    assert sockets == [Verdict.OK, Verdict.FAILURE]
