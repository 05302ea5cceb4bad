"""containerd, with runc below it and NRI open."""

import json
import subprocess
from pathlib import Path

from tests.e2e.debian import Runtime
from tests.e2e.kube import folders, images
from tests.e2e.kube.daemon import Daemon
from tests.e2e.peers import Peers
from tests.e2e.processes import wait_until

_SNAPSHOTTER = "native"
"""Copies layers: for two megabytes that is cheap, and it works on whatever file system is there."""

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

_NETWORK = {"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}
"""Enough for a node to be ready; pods use the node's own network."""


class Containerd(Daemon):
    name = "containerd"

    def __init__(self, peers: Peers, runtime: Runtime) -> None:
        super().__init__()
        self._peers = peers
        self._runtime = runtime

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
                snapshotter=_SNAPSHOTTER,
            )
        )
        (folders.CNI / "loopback.conflist").write_text(json.dumps(_NETWORK))
        return [self._peers.containerd, "--config", config]

    def ready(self) -> bool:
        return self._ctr("version").returncode == 0

    def load_image(self) -> None:
        archive = folders.STATE / "busybox.tar"
        images.write(archive, self._runtime.busybox)
        images.load(archive, self._peers.ctr, folders.CRI_SOCKET, _SNAPSHOTTER)

    def tasks(self) -> list[str]:
        """Return the ids of all that runs, sandboxes included."""
        done = self._ctr("--namespace", "k8s.io", "tasks", "list", "--quiet")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def kill_tasks(self) -> None:
        """End what still runs without asking the kubelet, which must be down: else it starts it."""
        for task in self.tasks():
            self._ctr("--namespace", "k8s.io", "tasks", "delete", "--force", task)
        wait_until(lambda: not self.tasks(), "no container runs")

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._peers.ctr, "--address", folders.CRI_SOCKET, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
