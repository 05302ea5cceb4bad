"""The programs of others: taken from Debian's packages, unpacked beside the build, not installed.

Installing a package would start a service and leave an account and a configuration on the machine;
unpacking leaves a few files below build/.
"""

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_CACHE = Path(__file__).resolve().parents[2] / "build" / "e2e"


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Paths of the programs in Debian's package `prometheus`."""

    server: Path
    promtool: Path


def prometheus() -> Prometheus:
    """Return the programs, fetched first when they aren't there yet."""
    root = _unpacked("prometheus")
    found = Prometheus(root / "usr/bin/prometheus", root / "usr/bin/promtool")
    for program in (found.server, found.promtool):
        _check(program)
    return found


@dataclass(frozen=True, slots=True)
class Runtime:
    """What containerd needs to run a container, and what runs in it."""

    runc: Path
    cni_plugins: Path
    """The folder of them."""
    busybox: Path
    """Linked statically: a container has no other file."""


def runtime() -> Runtime:
    """Return the programs, fetched first when they aren't there yet."""
    found = Runtime(
        runc=_unpacked("runc") / "usr/sbin/runc",
        cni_plugins=_unpacked("containernetworking-plugins") / "usr/lib/cni",
        busybox=_unpacked("busybox-static") / "bin/busybox",
    )
    _check(found.runc)
    return found


def _unpacked(package: str) -> Path:
    root = _CACHE / package
    if not root.is_dir():
        _unpack(package, root)
    return root


def _unpack(package: str, root: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RuntimeError(f"no {tool}: the end-to-end tests take {package} from Debian")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as made:
        folder = Path(made)
        # apt gives up root to fetch, and then needs a folder that is not root's alone.
        folder.chmod(0o777)
        _download(package, folder)
        (archive,) = folder.glob("*.deb")
        whole = folder / "whole"
        _run("dpkg-deb", "--extract", str(archive), str(whole), cwd=folder)
        try:
            # In one step: whoever finds the folder finds all of it.
            whole.rename(root)
        except OSError:
            if not root.is_dir():
                raise


def _download(package: str, folder: Path) -> None:
    command = ("apt-get", "download", "--quiet", package)
    try:
        _run(*command, cwd=folder)
    except RuntimeError:
        # The lists of packages are missing or name a version that has been replaced since.
        _run("apt-get", "update", "--quiet", cwd=folder)
        _run(*command, cwd=folder)


def _check(program: Path) -> None:
    """Make sure that the loader finds every library: the package's dependencies aren't here."""
    listed = _run("ldd", str(program), cwd=program.parent)
    missing = [line.strip() for line in listed.splitlines() if "not found" in line]
    if missing:
        raise RuntimeError(f"{program} lacks libraries: {', '.join(missing)}")


def _run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout
