"""A real Podman with device nodes of GPUs and CDI names, on a machine without either.

Podman runs in a mount namespace with its own /dev and /etc, and serves its API on a socket. The
containers have real processes and cgroups. Their image contains busybox.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e import debian
from tests.e2e.container_daemon import GPUS, ContainerDaemon
from tests.e2e.processes import Process, wait_until

_CONTAINERS: Final = """\
[containers]
netns = "none"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
conmon_path = ["{conmon}"]
runtime = "runc"
tmp_dir = "{folder}/tmp"
network_config_dir = "{folder}/net"
[engine.runtimes]
runc = ["{runc}"]
"""
_STORAGE: Final = """\
[storage]
driver = "vfs"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
_NAMESPACE: Final = """\
set -e
folder=$1; gpus=$2; shift 2
mkdir -p "$folder/etc" "$folder/dev"
cp -a /etc/. "$folder/etc"
mkdir -p "$folder/etc/containers" "$folder/etc/cdi"
cp "$folder/policy.json" "$folder/etc/containers/policy.json"
cp "$folder/cdi.json" "$folder/etc/cdi/nvidia.json"
mount --bind "$folder/etc" /etc
mount -t tmpfs tmpfs "$folder/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$folder/dev"
mkdir "$folder/dev/pts" "$folder/dev/shm" "$folder/dev/mqueue"
ln -s pts/ptmx "$folder/dev/ptmx"
ln -s /proc/self/fd "$folder/dev/fd"
mount --bind /dev/pts "$folder/dev/pts"
for number in $(seq 0 $((gpus - 1))); do mknod "$folder/dev/nvidia$number" c 195 "$number"; done
mount --move "$folder/dev" /dev
exec "$@"
"""


class Podman(ContainerDaemon):
    """Podman and its containers."""

    runtime = "podman"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = debian.podman()
        runtime = debian.runtime()
        self.socket = folder / "podman.sock"
        values = {"folder": folder, "conmon": self._programs.conmon, "runc": runtime.runc}
        (folder / "containers.conf").write_text(_CONTAINERS.format(**values))
        (folder / "storage.conf").write_text(_STORAGE.format(**values))
        (folder / "policy.json").write_bytes(self._programs.policy.read_bytes())
        (folder / "cdi.json").write_text(json.dumps(_cdi()))
        self.env = {
            **self._programs.env,
            "HOME": str(folder),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        self._service: Process | None = None
        self.start()
        self.load_image(runtime.busybox)

    def start(self) -> None:
        """Start the service of the API, in a new mount namespace."""
        self.socket.unlink(missing_ok=True)
        serve = (self._programs.podman, "system", "service", "--time", "0", f"unix://{self.socket}")
        self._service = Process(
            ("unshare", "--mount", "sh", "-c", _NAMESPACE, "sh", self._folder, str(GPUS), *serve),
            self._folder / "podman.log",
            self.env,
        )
        wait_until(self.socket.exists, "the socket of Podman")

    def stop(self) -> None:
        """Stop the service; containers continue."""
        assert self._service is not None
        self._service.stop()

    @property
    def client(self) -> tuple[Path | str, ...]:
        return (self._programs.podman, "--url", f"unix://{self.socket}")

    def gpu(self, number: int) -> str:
        return f"--device=/dev/nvidia{number}"


def _cdi() -> dict[str, Any]:
    def device(name: str, *numbers: int) -> dict[str, Any]:
        nodes = [
            {"path": f"/dev/nvidia{n}", "type": "c", "major": 195, "minor": n} for n in numbers
        ]
        return {"name": name, "containerEdits": {"deviceNodes": nodes}}

    devices = [device(str(number), number) for number in range(GPUS)]
    return {
        "cdiVersion": "0.3.0",
        "kind": "nvidia.com/gpu",
        "devices": [*devices, device("all", *range(GPUS))],
        "containerEdits": {},
    }


def _end_monitors(folder: Path) -> None:
    """End what Podman left: the monitor of an `exec` waits five minutes after its end."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"HOME={folder}\0".encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


@contextmanager
def running_podman(folder: Path, kind: type[Podman] = Podman) -> Iterator[Podman]:
    """Run Podman, and remove all its containers at the end."""
    podman = kind(folder)
    try:
        yield podman
    finally:
        podman.remove_all()
        podman.stop()
        _end_monitors(folder)
