"""The image of every container and sandbox: busybox.

It is built here, because tests cannot pull images.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

IMAGE = "docker.io/local/busybox:1"

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_FOREVER = ["/bin/sleep", "2147483647"]
_LINKS = {"lib": "usr/lib", "lib64": "usr/lib64"}
"""Library paths of the node's programs, for pods that mount the node's /usr."""


def write(archive: Path, busybox: Path) -> None:
    """Write the image as an archive of `docker save`."""
    layer = _layer(busybox)
    config = {
        "architecture": _MACHINES[platform.machine()],
        "os": "linux",
        # The sandbox needs a program that waits; pods set their own command.
        "config": {"Cmd": _FOREVER, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "layer.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def load(archive: Path, ctr: Path, socket: Path, snapshotter: str) -> None:
    """Load the image into containerd."""
    subprocess.run(
        [
            *(ctr, "--address", socket, "--namespace", "k8s.io"),
            *("images", "import", "--local", "--snapshotter", snapshotter, archive),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )


def _layer(busybox: Path) -> bytes:
    done = subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, check=True, timeout=10
    )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        applets = {f"bin/{name}": "busybox" for name in done.stdout.split() if name != "busybox"}
        for name, target in {**applets, **_LINKS}.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
