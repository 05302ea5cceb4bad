"""containerd with runc and an NRI socket."""

import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.e2e.debian import Runtime
from tests.e2e.kube import folders, images
from tests.e2e.kube.daemon import Daemon
from tests.e2e.peers import Peers
from tests.e2e.processes import wait_until

NETWORK = "podgpu-e2e"
POD_ADDRESSES = "10.244.7.0/24"
"""The subnet of pods that do not use the host network."""

_CONFIG = """\
version = 4
root = "{root}"
state = "{run}/containerd"

[plugins.'io.containerd.server.v1.grpc']
  address = "{cri}"
[plugins.'io.containerd.server.v1.ttrpc']
  address = "{cri}.ttrpc"
[plugins.'io.containerd.internal.v1.opt']
  path = "{root}/opt"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "{snapshotter}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{image}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{cdi}"]
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{cni_plugins}"]
  conf_dir = "{cni}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  Root = "{run}/runc"
  SystemdCgroup = false
[plugins.'io.containerd.nri.v1.nri']
  socket_path = "{nri}"
  plugin_path = "{run}/nri-plugins"
  plugin_config_path = "{run}/nri-conf"
"""


@cache
def _snapshotter() -> str:
    """Return the snapshotter: overlayfs, or `native`, which copies, where overlayfs cannot be
    mounted."""
    with tempfile.TemporaryDirectory(dir=folders.CONTAINERD) as made:
        for name in ("lower", "upper", "work", "whole"):
            (Path(made) / name).mkdir()
        layers = "lowerdir=lower,upperdir=upper,workdir=work"
        mount = ["mount", "-t", "overlay", "-o", layers, "overlay", "whole"]
        if subprocess.run(mount, cwd=made, capture_output=True, check=False).returncode:
            return "native"
        subprocess.run(["umount", "whole"], cwd=made, check=True)
    return "overlayfs"


def _network() -> dict[str, Any]:
    """Return the CNI network of pods: a point-to-point link to the node for each."""
    addresses = {
        "type": "host-local",
        "dataDir": str(folders.RUN / "addresses"),
        "ranges": [[{"subnet": POD_ADDRESSES}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    wire = {"type": "ptp", "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": NETWORK, "plugins": [wire]}


class Containerd(Daemon):
    name = "containerd"

    def __init__(self, peers: Peers, runtime: Runtime) -> None:
        super().__init__()
        self._peers = peers
        self._runtime = runtime
        self._executed = 0

    def command(self) -> list[str | Path]:
        config = folders.STATE / "containerd.toml"
        config.write_text(
            _CONFIG.format(
                root=folders.CONTAINERD,
                run=folders.RUN,
                cri=folders.CRI_SOCKET,
                nri=folders.NRI_SOCKET,
                cdi=folders.CDI,
                cni=folders.CNI,
                cni_plugins=self._runtime.cni_plugins,
                runc=self._runtime.runc,
                image=images.IMAGE,
                snapshotter=_snapshotter(),
            )
        )
        (folders.CNI / "network.conflist").write_text(json.dumps(_network()))
        return [self._peers.containerd, "--config", config]

    def ready(self) -> bool:
        return self._ctr("version").returncode == 0

    def load_image(self) -> None:
        archive = folders.STATE / "busybox.tar"
        images.write(archive, self._runtime.busybox)
        self.load(archive)

    def load(self, archive: Path) -> None:
        """Load the images of an archive of `docker save`."""
        images.load(archive, self._peers.ctr, folders.CRI_SOCKET, _snapshotter())

    def tag(self, image: str, other: str) -> None:
        """Add a name to an image."""
        done = self._ctr("--namespace", "k8s.io", "images", "tag", "--force", image, other)
        assert done.returncode == 0, done.stderr

    def tasks(self) -> list[str]:
        """Return the ids of all running containers and sandboxes."""
        done = self._ctr("--namespace", "k8s.io", "tasks", "list", "--quiet")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def pid_of(self, container: str) -> int:
        """Return the pid of a container's first process in the node's namespace."""
        for line in self._ctr("--namespace", "k8s.io", "tasks", "list").stdout.splitlines():
            task, pid, *_ = line.split()
            if task == container:
                return int(pid)
        raise LookupError(f"no container {container} runs")

    def execute(self, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container, with its user and environment."""
        self._executed += 1
        name = f"test-{self._executed}"
        return self._ctr(
            *("--namespace", "k8s.io", "tasks", "exec", "--exec-id", name, container, *command),
            seconds=60,
        )

    def kill_tasks(self) -> None:
        """Kill all containers. The kubelet must be stopped, otherwise it restarts them."""
        for task in self.tasks():
            self._ctr("--namespace", "k8s.io", "tasks", "delete", "--force", task)
        wait_until(lambda: not self.tasks(), "no container runs")

    def _ctr(self, *arguments: str, seconds: float = 20) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._peers.ctr, "--address", folders.CRI_SOCKET, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
