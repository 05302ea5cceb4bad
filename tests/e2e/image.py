"""podgpu's image, built by its Dockerfile on a base of Debian's packages; nothing is pulled.

The base and the Python packages are cached. The image is rebuilt if its content has changed.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.e2e import debian

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "docker.io/local/podgpu:test"
REVISION = "0123456789abcdef0123456789abcdef01234567"
CREATED = "2030-01-31T12:00:00Z"

_FOLDER = ROOT / "build" / "e2e" / "image"
_ARCHIVE = _FOLDER / "podgpu.tar"
WHEELS = _FOLDER / "wheels"
"""The Python packages that podgpu and its build need."""
_STORAGE = _FOLDER / "storage"
_STATE = Path("/run/podgpu-e2e-buildah")

# vfs copies files, and works on any file system.
_PLACES = ("--root", str(_STORAGE), "--runroot", str(_STATE), "--storage-driver", "vfs")
_POLICY = json.dumps({"default": [{"type": "insecureAcceptAnything"}]})

_BASE = "localhost/base"
_PACKAGES = "python3,python3-venv"
_MOUNTED = "/mnt"
"""The folder of the Python packages during the build, which uses no registry."""

_REQUIREMENTS = (ROOT / "requirements.txt", ROOT / "image" / "build-requirements.txt")
_PYTHON = "3.11"
"""Python version of the base."""

_NOT_RUN = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")
_LIMIT = 600
"""Timeout of a command in seconds."""

_UNDER_POLICY = {"from", "commit", "build-using-dockerfile", "push"}
"""Commands that read a signature policy, which may be missing in /etc/containers."""


@dataclass(frozen=True)
class Image:
    """The image as an archive of `docker save`."""

    archive: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The image configuration, with Docker's names."""
        with tarfile.open(self.archive) as tar:
            whole = json.loads(self._file(tar, self._manifest(tar)["Config"]))
        found: dict[str, Any] = whole["config"]
        return found

    def layers(self) -> list[list[tarfile.TarInfo]]:
        """Return the members of each layer, the base's first."""
        with tarfile.open(self.archive) as tar:
            found = []
            for name in self._manifest(tar)["Layers"]:
                layer = tar.extractfile(name)
                assert layer is not None
                with tarfile.open(fileobj=layer) as content:
                    found.append(content.getmembers())
        return found

    def _manifest(self, tar: tarfile.TarFile) -> dict[str, Any]:
        (found,) = json.loads(self._file(tar, "manifest.json"))
        manifest: dict[str, Any] = found
        return manifest

    @staticmethod
    def _file(tar: tarfile.TarFile, name: str) -> bytes:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def build() -> Image:
    """Return the image; build it first if its content has changed.

    The first build takes about four minutes, half of them for the base; later ones take one.
    """
    with _locked():
        tools = _prepare()
        stamp = _hash([ROOT / "Dockerfile", *_context(), _FOLDER / "base.stamp"])
        _stamped("podgpu", stamp, lambda: _make(tools))
    return Image(_ARCHIVE)


@dataclass(frozen=True)
class Tool:
    """buildah, the base of images, and the variables that both need."""

    command: str
    """Its words, with options."""
    base: str
    env: Mapping[str, str]


@contextmanager
def tool() -> Iterator[Tool]:
    """Lend buildah and the base to a test that builds an image itself."""
    with _locked(), tempfile.TemporaryDirectory() as home:
        tools = _prepare()
        policy = Path(home) / ".config" / "containers" / "policy.json"
        policy.parent.mkdir(parents=True)
        policy.write_text(_POLICY)
        env = {**tools.env, "HOME": home, "BUILDAH_ISOLATION": "chroot"}
        yield Tool(shlex.join([str(tools.buildah), *_PLACES]), _BASE, env)


@contextmanager
def container(folders: Mapping[Path, str]) -> Iterator[list[str]]:
    """Yield the beginning of a command that runs in a new container of the base.

    Args:
        folders: folders of this machine with their read-only places in the container. The network
            is that of this machine.
    """
    with _locked():
        tools = _prepare()
        name = _buildah(tools, "from", "--pull-never", _BASE)
        mounts = [f"--volume={folder}:{place}:ro" for folder, place in folders.items()]
        run = [str(tools.buildah), *_PLACES, "run", "--isolation=chroot", *mounts, name, "--"]
        try:
            yield ["env", *(f"{key}={text}" for key, text in tools.env.items()), *run]
        finally:
            _buildah(tools, "rm", name)


def _prepare() -> debian.Building:
    """Return buildah, after the base and the Python packages have been made."""
    tools = debian.building()
    _stamped("base", _base_stamp(), lambda: _make_base(tools))
    _stamped("wheels", _hash(_REQUIREMENTS), _fetch_wheels)
    return tools


@contextmanager
def _locked() -> Iterator[None]:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stamped(name: str, wanted: str, make: Any) -> None:
    stamp = _FOLDER / f"{name}.stamp"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    print(f"building the image: {name}", flush=True)
    began = time.monotonic()
    make()
    print(f"took {time.monotonic() - began:.0f} s", flush=True)
    stamp.write_text(wanted)  # last, so that an interrupted build has no stamp


def _base_stamp() -> str:
    return hashlib.sha256(
        repr((debian.RELEASE, _PACKAGES, _MOUNTED, _NOT_RUN)).encode()
    ).hexdigest()


def _context() -> Iterable[Path]:
    """Yield the files that .dockerignore includes."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for name in sorted(line.removeprefix("!") for line in lines if line.startswith("!")):
        path = ROOT / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (each for each in files if each.is_file() and "__pycache__" not in each.parts)


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(ROOT)}\0{file.stat().st_mode:o}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _fetch_wheels() -> None:
    shutil.rmtree(WHEELS, ignore_errors=True)
    which = [word for file in _REQUIREMENTS for word in ("-r", str(file))]
    _run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(WHEELS)),
            *("--require-hashes", "--only-binary=:all:", "--python-version", _PYTHON, *which),
        ],
    )


def _make_base(tools: debian.Building) -> None:
    _clear()
    container = _buildah(tools, "from", "scratch")
    root = Path(_buildah(tools, "mount", container))
    release = (debian.RELEASE, str(root), tools.mirror)
    wanted = ("--variant=minbase", f"--include={_PACKAGES}")
    _run([str(tools.debootstrap), *wanted, *release], tools)
    for folder in _NOT_RUN:
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
    # pip finds packages only in this folder.
    (root / "etc/pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {_MOUNTED}\n")
    _buildah(tools, "umount", container)
    _buildah(tools, "commit", "--quiet", container, _BASE)
    _buildah(tools, "rm", container)


def _clear() -> None:
    # An interrupted run leaves mounts.
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        target = line.split()[1]
        if Path(target).is_relative_to(_STORAGE):
            subprocess.run(["umount", "--lazy", target], check=True, timeout=20)
    for folder in (_STORAGE, _STATE):
        shutil.rmtree(folder, ignore_errors=True)


def _make(tools: debian.Building) -> None:
    _buildah(
        tools,
        *("build-using-dockerfile", "--quiet", "--pull-never", "--tag", REFERENCE),
        *("--build-arg", f"BASE={_BASE}", "--build-arg", f"REVISION={REVISION}"),
        *("--build-arg", f"CREATED={CREATED}"),
        *("--volume", f"{WHEELS}:{_MOUNTED}:ro", str(ROOT)),
    )
    _ARCHIVE.unlink(missing_ok=True)
    _buildah(tools, "push", "--quiet", REFERENCE, f"docker-archive:{_ARCHIVE}:{REFERENCE}")
    _buildah(tools, "rmi", REFERENCE)
    shutil.rmtree(_STATE)


def _buildah(tools: debian.Building, command: str, *words: str) -> str:
    policy = _FOLDER / "policy.json"
    policy.write_text(_POLICY)
    how = ["--signature-policy", str(policy)] if command in _UNDER_POLICY else []
    how += ["--isolation", "chroot"] if command == "build-using-dockerfile" else []
    return _run([str(tools.buildah), *_PLACES, command, *how, *words], tools).strip()


def _run(command: list[str], tools: debian.Building | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
        cwd=_FOLDER,
        env={**os.environ, **(tools.env if tools else {})},
    )
    if done.returncode != 0:
        output = f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{output}")
    return done.stdout
