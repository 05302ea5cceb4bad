"""A real Docker on a machine without GPUs.

It accepts `--gpus` because it finds NVIDIA's hook, which does nothing here. Docker runs in a mount
namespace of its own, so that no mount is left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e import debian
from tests.e2e.container_daemon import ContainerDaemon
from tests.e2e.processes import Process, wait_until

_HOOK: Final = "nvidia-container-runtime-hook"
_SYSTEM: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


class Docker(ContainerDaemon):
    """Docker and its containers."""

    runtime = "docker"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = debian.docker()
        self.socket = folder / "docker.sock"
        hook = folder / "hook" / _HOOK
        hook.parent.mkdir()
        hook.write_text("#!/bin/sh\nexit 0\n")
        hook.chmod(0o755)
        self.env = {
            "PATH": f"{hook.parent}:{self._programs.path}:{_SYSTEM}",
            "DOCKER_CONFIG": str(folder),
        }
        self.start()
        self.load_image(debian.runtime().busybox)

    def start(self) -> None:
        folder = self._folder
        self.socket.unlink(missing_ok=True)
        options = {
            "data-root": folder / "data",
            "exec-root": folder / "exec",
            "pidfile": folder / "docker.pid",
            "host": f"unix://{self.socket}",
            "storage-driver": "vfs",
            "bridge": "none",
            "iptables": "false",
            "ip-forward": "false",
            "ip-masq": "false",
            "live-restore": "true",
            "default-ulimit": "nofile=1024:1024",
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        command = ("unshare", "--mount", str(self._programs.daemon), *flags)
        self._service = Process(command, folder / "docker.log", self.env)
        wait_until(self._responds, "a response of Docker")

    def _responds(self) -> bool:
        try:
            return bool(self.socket.exists() and self("version"))
        except AssertionError:
            return False

    @property
    def client(self) -> tuple[Path | str, ...]:
        return (self._programs.client, "--host", f"unix://{self.socket}")

    def gpu(self, number: int) -> str:
        return f"--gpus=device={number}"


@contextmanager
def running_docker(folder: Path) -> Iterator[Docker]:
    """Run Docker, and remove all its containers at the end."""
    docker = Docker(folder)
    try:
        yield docker
    finally:
        docker.remove_all()
        docker.stop()
