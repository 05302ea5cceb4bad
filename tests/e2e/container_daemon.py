"""What the tests need of a daemon that runs containers: Docker or Podman.

The containers have real processes and cgroups. Their image contains busybox.
"""

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.e2e.processes import Process

GPUS: Final = 3
IMAGE: Final = "localhost/busybox:1"


class ContainerDaemon:
    """A daemon and its containers.

    Attributes:
        runtime: its name in the uids of containers.
        socket: path of the socket of its API.
        env: the variables that its client needs.
    """

    runtime: str
    socket: Path
    env: Mapping[str, str]
    _service: Process | None = None

    # For subclasses.

    @property
    def client(self) -> tuple[Path | str, ...]:
        """The command of its client, with the address of the daemon."""
        raise NotImplementedError

    def gpu(self, number: int) -> str:
        """Return the option that gives a container a GPU."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the daemon, and wait until it has a socket."""
        raise NotImplementedError

    # Its containers.

    def stop(self) -> None:
        """Stop the daemon; containers continue."""
        assert self._service is not None
        self._service.stop()

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run a command of the client, and return its output."""
        done = subprocess.run(
            (*self.client, *arguments),
            env={**os.environ, **self.env},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (arguments, done.stderr.decode())
        return done.stdout.decode().strip()

    def load_image(self, busybox: Path) -> None:
        """Make the image."""
        self("import", "-", IMAGE, stdin=_image(busybox))

    def run(self, name: str, *options: str) -> None:
        """Start a container that runs until it is ended."""
        self("run", "--detach", "--network=none", "--name", name, *options, IMAGE, "sleep", "1000")

    def inspect(self, name: str, what: str) -> str:
        return self("inspect", "--format", "{{" + what + "}}", name)

    def pid(self, name: str) -> int:
        return int(self.inspect(name, ".State.Pid"))

    def pids(self, name: str) -> list[int]:
        """Return all processes of a container."""
        container_id, found = self.inspect(name, ".Id"), []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                # Podman's monitor of the container has no such cgroup.
                if container_id in (process / "cgroup").read_text():
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    def remove_all(self) -> None:
        # Podman waits ten seconds for a container that ignores SIGTERM, as the first process does.
        for container_id in self("ps", "--quiet").split():
            self("kill", container_id)
        for container_id in self("ps", "--all", "--quiet").split():
            self("rm", "--force", container_id)


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
