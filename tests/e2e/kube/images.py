"""The image that every container runs, the sandbox's too: a busybox.

Made here: nothing can be pulled where the tests run.
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
"""Where programs of the node look for their libraries, in a pod that has its /usr."""


def write(archive: Path, busybox: Path) -> None:
    """Write the image as `docker save` would."""
    layer = _layer(busybox)
    config = {
        "architecture": _MACHINES[platform.machine()],
        "os": "linux",
        # A sandbox needs a program that waits; pods name their own.
        "config": {"Cmd": _FOREVER, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "layer.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def load(archive: Path, ctr: Path, socket: Path, snapshotter: str) -> None:
    """Give the image to containerd."""
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
