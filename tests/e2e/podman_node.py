"""A real Podman with device nodes of GPUs and CDI names, on a machine without either.

Podman runs in a mount namespace with its own /dev and /etc, and serves its API on a socket. The
containers have real processes and cgroups. Their image contains busybox.
"""

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e import debian
from tests.e2e.processes import Process, wait_until

GPUS: Final = 3
IMAGE: Final = "localhost/busybox:1"

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


class Podman:
    """Podman and its containers.

    Attributes:
        socket: path of the socket of its API.
    """

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
        self._env = {
            **self._programs.env,
            "HOME": str(folder),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        self._service: Process | None = None
        self.start()
        self("import", "-", IMAGE, stdin=_image(runtime.busybox))

    def start(self) -> None:
        """Start the service of the API, in a new mount namespace."""
        self.socket.unlink(missing_ok=True)
        serve = (self._programs.podman, "system", "service", "--time", "0", f"unix://{self.socket}")
        self._service = Process(
            ("unshare", "--mount", "sh", "-c", _NAMESPACE, "sh", self._folder, str(GPUS), *serve),
            self._folder / "podman.log",
            self._env,
        )
        wait_until(self.socket.exists, "the socket of Podman")

    def stop(self) -> None:
        """Stop the service; containers continue."""
        assert self._service is not None
        self._service.stop()

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run a command of Podman by the service, and return its output."""
        done = subprocess.run(
            (self._programs.podman, "--url", f"unix://{self.socket}", *arguments),
            env={**os.environ, **self._env},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (arguments, done.stderr.decode())
        return done.stdout.decode().strip()

    def run(self, name: str, *options: str) -> None:
        """Start a container that runs until it is ended."""
        self("run", "--detach", "--name", name, *options, IMAGE, "sleep", "1000")

    def inspect(self, name: str, what: str) -> str:
        return self("inspect", "--format", "{{" + what + "}}", name)

    def pid(self, name: str) -> int:
        return int(self.inspect(name, ".State.Pid"))

    def remove_all(self) -> None:
        self("rm", "--all", "--force", "--time", "0")


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


def _image(busybox: Path) -> bytes:
    """Return the file system of the image as a tar archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "sleep"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return made.getvalue()


@contextmanager
def running_podman(folder: Path) -> Iterator[Podman]:
    """Run Podman, and remove all its containers at the end."""
    podman = Podman(folder)
    try:
        yield podman
    finally:
        podman.remove_all()
        podman.stop()
