"""The node's own programs, built from source: containerd, etcd and Kubernetes.

Each folder here is a Go module without code of its own: its go.mod names the programs as tools and
go.sum holds their checksums. One module for all can't be: the versions they depend on clash. What
is built lies below build/ and is built again only when the module has changed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_MODULES = Path(__file__).parent
BUILT = _MODULES.parents[2] / "build" / "e2e" / "peers"
_LIMIT = 3600
"""Seconds for one program: those of Kubernetes take minutes on two cores."""

_KUBERNETES = "v1.37.2"
_VERSION = "k8s.io/component-base/version"
_CONTAINERD = "github.com/containerd/containerd/v2"


@dataclass(frozen=True, slots=True)
class _Module:
    programs: Mapping[str, str]
    """Packages by the name of the program made from each."""
    tags: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of string variables: what the programs say their version is."""


_ALL = {
    "containerd": _Module(
        {
            name: f"{_CONTAINERD}/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        tags="no_btrfs no_devmapper no_zfs",
        values={f"{_CONTAINERD}/version.Version": "v2.4.2"},
    ),
    "etcd": _Module({"etcd": "go.etcd.io/etcd/server/v3"}),
    "kubernetes": _Module(
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kubelet", "kube-apiserver", "kube-scheduler")
        },
        values={
            f"{_VERSION}.gitVersion": _KUBERNETES,
            f"{_VERSION}.gitMajor": "1",
            f"{_VERSION}.gitMinor": _KUBERNETES.split(".")[1],
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Peers:
    """Paths of the programs."""

    containerd: Path
    """The shim and ctr lie beside it."""
    ctr: Path
    etcd: Path
    kubelet: Path
    apiserver: Path
    scheduler: Path


def build() -> Peers:
    """Return the programs, built first when they aren't there yet: some seven minutes."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / ".lock").open("w") as lock:
        # Whoever comes while another builds waits for what that one makes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, module in _ALL.items():
            _build(name, module)
    return Peers(
        containerd=BUILT / "containerd" / "containerd",
        ctr=BUILT / "containerd" / "ctr",
        etcd=BUILT / "etcd" / "etcd",
        kubelet=BUILT / "kubernetes" / "kubelet",
        apiserver=BUILT / "kubernetes" / "kube-apiserver",
        scheduler=BUILT / "kubernetes" / "kube-scheduler",
    )


def _build(name: str, module: _Module) -> None:
    folder = BUILT / name
    stamp = folder / "stamp"
    wanted = _hash(name, module)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    if shutil.which("go") is None:
        raise RuntimeError(f"no go: the end-to-end tests build {name} from source")
    with tempfile.TemporaryDirectory(dir=BUILT) as made:
        for program, package in module.programs.items():
            _go(module, _MODULES / name, Path(made) / program, package)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for program in module.programs:
            (Path(made) / program).rename(folder / program)
    stamp.write_text(wanted)  # last: a build that was cut short has none


def _go(module: _Module, source: Path, target: Path, package: str) -> None:
    values = [f"-X {name}={value}" for name, value in module.values.items()]
    command = [
        *("go", "build", "-buildvcs=false", f"-tags={module.tags}"),
        f"-ldflags={' '.join(['-s', '-w', *values])}",
        *("-o", str(target), package),
    ]
    print(f"building {target.name}", flush=True)
    done = subprocess.run(
        command,
        cwd=source,
        # Static: runs whatever the machine's C library is.
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-3000:]}")


def _hash(name: str, module: _Module) -> str:
    digest = hashlib.sha256(repr(module).encode())
    for file in ("go.mod", "go.sum"):
        digest.update((_MODULES / name / file).read_bytes())
    return digest.hexdigest()
