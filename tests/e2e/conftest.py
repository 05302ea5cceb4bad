"""Fixtures of the end-to-end tests: programs that are started and stopped."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e import debian, peers
from tests.e2e.collector import Collector, collecting
from tests.e2e.docker_node import Docker, running_docker
from tests.e2e.helm import Helm
from tests.e2e.image import Image, tool
from tests.e2e.image import build as build_image
from tests.e2e.kube.background import Background
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.full_cluster import missing_rights
from tests.e2e.node import Node, running
from tests.e2e.podman_node import Podman, running_podman
from tests.e2e.prometheus import Server
from tests.e2e.prometheus3 import Prometheus3, Taking, taking
from tests.e2e.slurm_node import Slurm, running_slurm
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.nvml import Scenario

_HERE = Path(__file__).parent
_TARGETS = 64
"""Number of targets of the shared Prometheus: one for each test that starts a podgpu, and spare
ones."""

Start = Callable[[Scenario], Node]
Collect = Callable[..., Collector]
"""Its arguments are the name of a folder and those of `collecting`."""
Take = Callable[[Taking], Prometheus3]


def _image() -> Image | None:
    return None if missing_rights() else build_image()


def _base() -> None:
    if not missing_rights():
        with tool():
            pass


def _daemons() -> None:
    debian.docker()
    debian.podman()


_BUILT_FOR: Mapping[str, Callable[[], object]] = {
    "cluster": peers.build,
    "collect": peers.collector,
    "take": peers.prometheus,
    "scrapers": peers.scrapers,
    "helm": peers.helm,
    "image": _image,
    "wheels": _base,
    "release": peers.helm,
    "registry": peers.crane,
    "kubectl": peers.kubectl,
    "cosign": peers.cosign,
    "syft": peers.syft,
    "s3_server": peers.versitygw,
    "slurm": debian.slurm,
    "daemon": _daemons,
    "podman": debian.podman,
}
"""Functions that build the programs of fixtures."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests a longer timeout than unit tests: the first one downloads a package.

    A machine has one cluster at a time. Its tests get a mark, so that `make e2e` can run them in
    one process, and all others in another one in the meantime.
    """
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.timeout(180))
            if "cluster" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.cluster)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build programs before the first test, because a build takes minutes."""
    if session.config.getoption("collectonly"):
        return
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for fixture, build in _BUILT_FOR.items():
        if fixture in needed:
            build()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The Kubernetes cluster of all tests; see `kube`."""
    with Cluster() as started:
        yield started


@pytest.fixture
def kube(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster without pods and plugins; those of the test are removed at its end."""
    yield cluster
    cluster.tidy()


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm without a cluster."""
    return Helm(peers.helm())


@pytest.fixture(scope="session")
def kubectl() -> Path:
    return peers.kubectl()


@pytest.fixture(scope="session")
def image() -> Image:
    """podgpu's image, built by its Dockerfile."""
    made = _image()
    if made is None:
        pytest.skip(f"an image cannot be built: {missing_rights()}")
    return made


@pytest.fixture(scope="session")
def loaded(image: Image, cluster: Cluster) -> Image:
    """The image, loaded on the node."""
    cluster.containerd.load(image.archive)
    return image


@pytest.fixture(scope="session")
def programs() -> debian.Prometheus:
    return debian.prometheus()


@pytest.fixture(scope="session")
def scrapers() -> peers.Scrapers:
    return peers.scrapers()


@contextmanager
def serving(programs: debian.Prometheus, folder: Path, targets: int) -> Iterator[Server]:
    server = Server(programs, folder, targets)
    try:
        server.wait_ready()
        yield server
    finally:
        status = server.process.stop()
    assert status == 0, server.process.output()[-3000:]


@pytest.fixture(scope="session")
def prometheus(
    programs: debian.Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The Prometheus of all tests; a test selects its series by `instance`."""
    with serving(programs, tmp_path_factory.mktemp("prometheus"), _TARGETS) as server:
        yield server


@pytest.fixture
def start(prometheus: Server, tmp_path: Path) -> Iterator[Start]:
    """Start nodes that are stopped at the end. A warning of Prometheus fails the test."""
    before = len(prometheus.problems())
    with ExitStack() as stack:
        yield lambda scenario: stack.enter_context(running(prometheus, tmp_path / "node", scenario))
    assert prometheus.problems()[before:] == []


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Collect]:
    """Start Collectors that are stopped at the end."""
    with ExitStack() as stack:
        yield lambda name="collector", **how: stack.enter_context(
            collecting(tmp_path / name, **how)
        )


@pytest.fixture
def collector(collect: Collect) -> Collector:
    """A Collector that accepts everything."""
    return collect()


@pytest.fixture
def take(tmp_path: Path) -> Iterator[Take]:
    """Start a Prometheus 3 that is stopped at the end."""
    with ExitStack() as stack:
        yield lambda how: stack.enter_context(taking(tmp_path / "prometheus3", how))


@pytest.fixture
def prometheus3(take: Take) -> Prometheus3:
    """A Prometheus that receives OTLP, with some promoted resource attributes."""
    return take(Taking())


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm of one node. A test ends its jobs itself."""
    if missing := missing_rights():
        pytest.skip(f"Slurm needs more rights: {missing}")
    # Jobs of other users must be able to enter the folder.
    with tempfile.TemporaryDirectory(prefix="podgpu-slurm-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        with running_slurm(folder) as started:
            yield started


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """A Podman whose containers can have GPUs. A test removes its containers itself."""
    if missing := missing_rights():
        pytest.skip(f"Podman needs more rights: {missing}")
    # A short path: that of a socket may have 107 characters.
    with (
        tempfile.TemporaryDirectory(prefix="podgpu-podman-") as made,
        running_podman(Path(made)) as started,
    ):
        yield started


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    """A Docker whose containers can have GPUs. A test removes its containers itself."""
    if missing := missing_rights():
        pytest.skip(f"Docker needs more rights: {missing}")
    with (
        tempfile.TemporaryDirectory(prefix="podgpu-docker-") as made,
        running_docker(Path(made)) as started,
    ):
        yield started


@pytest.fixture
def fake_kubelet(tmp_path: Path) -> Iterator[FakeKubelet]:
    """A fake pod-resources socket, for tests that need nothing else of a kubelet."""
    background = Background()
    kubelet = FakeKubelet(tmp_path / "kubelet.sock")
    background.do(kubelet.start())
    try:
        yield kubelet
    finally:
        background.do(kubelet.stop())
        background.stop()
