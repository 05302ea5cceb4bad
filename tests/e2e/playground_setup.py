"""Prepare a cluster for manual tests: simulated GPUs, pods that hold some, and podgpu's image."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.deploy.places import CHART
from tests.e2e.charts import Values
from tests.e2e.image import REFERENCE, Image
from tests.e2e.installation import prepared_site
from tests.e2e.kube import folders
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.scenes import distinct
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.build import SONAME

REPOSITORY = REFERENCE.rpartition(":")[0]
TAG = str(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"])
"""The default image tag of the chart."""

PODS = {"train-0": 2, "notebook-0": 1}
"""Number of GPUs of each pod; one GPU is free."""

_FOLDER = folders.STATE / "playground"
_DRIVER = _FOLDER / "driver"
"""A folder with the layout of a driver root: the library is where the chart expects it."""

_LIBRARIES = _DRIVER / "usr" / "lib" / "x86_64-linux-gnu"
_PLAYED = "/opt/played"


@dataclass(frozen=True, slots=True)
class Playground:
    """A cluster on which podgpu can be installed.

    Attributes:
        values: values file for helm with the differences to a node with a real driver.
        fake: controls the simulated GPUs.
    """

    cluster: Cluster
    values: Path
    fake: FakeNvml

    @property
    def kubeconfig(self) -> Path:
        return self.cluster.admin_kubeconfig


@contextmanager
def playing(cluster: Cluster, image: Image | None) -> Iterator[Playground]:
    """Prepare a running cluster, and remove everything at the end.

    Args:
        image: podgpu's image to load on the node; None to leave this to the user.
    """
    with ExitStack() as ends:
        ends.enter_context(prepared_site(cluster, reachable=True))
        if image is not None:
            cluster.containerd.load(image.archive)
            cluster.containerd.tag(REFERENCE, f"{REPOSITORY}:{TAG}")
        ends.callback(shutil.rmtree, _FOLDER, ignore_errors=True)
        fake = _driver()
        cluster.plugin([gpu.uuid for gpu in fake.scenario.gpus])
        for name, gpus in PODS.items():
            cluster.run(gpu_pod(name, gpus, scheduled=True))
        file = _FOLDER / "values.yaml"
        file.write_text(yaml.safe_dump(_values(fake), sort_keys=False))
        yield Playground(cluster, file, fake)


def _driver() -> FakeNvml:
    played = _FOLDER / "played"
    for folder in (_LIBRARIES, played):
        folder.mkdir(parents=True)
    fake = FakeNvml(distinct(), played)
    shutil.copy(fake.library_folder / SONAME, _LIBRARIES / SONAME)
    return fake


def _values(fake: FakeNvml) -> Values:
    return {
        "image": {"repository": REPOSITORY},
        # There is no container toolkit that mounts the driver library.
        "driverRoot": str(_DRIVER),
        "kubeletPath": str(folders.POD_RESOURCES_SOCKET.parent),
        # The scenario of the simulated driver.
        "extraEnv": [{"name": "FAKENVML_SCENARIO", "value": f"{_PLAYED}/{fake.path.name}"}],
        "extraHostVolumes": [{"name": "played", "hostPath": str(fake.path.parent)}],
        "extraVolumeMounts": [{"name": "played", "mountPath": _PLAYED, "readOnly": True}],
    }
