"""The programs of others: taken from Debian's packages, unpacked beside the build, not installed.

Installing a package would start a service and leave an account and a configuration on the machine;
unpacking leaves a few files below build/.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CACHE = Path(__file__).resolve().parents[2] / "build" / "e2e"
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

RELEASE = "bookworm"
"""Of Debian: the programs are its, and the image's base is one of it."""


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


def faketime() -> Path:
    """Return the library that shows programs another wall clock, fetched first if need be."""
    return next(_unpacked("libfaketime").glob("usr/lib/*/faketime/libfaketimeMT.so.1"))


@dataclass(frozen=True, slots=True)
class Building:
    """What makes images: the commands `buildah` and `debootstrap`, and variables that they need."""

    buildah: Path
    debootstrap: Path
    env: Mapping[str, str]
    mirror: str
    """Where packages come from: the address that apt has."""


def building() -> Building:
    """Return the programs, fetched first when they aren't there yet."""
    root = _CACHE / "building"
    buildah = root / "usr/bin/buildah"
    if not root.is_dir():
        _unpack("building", root, ("buildah", "debootstrap"), finish=_find_libraries)
    search = (*(root / place for place in ("usr/sbin", "usr/bin", "sbin", "bin")), _USUAL_PATH)
    env = {
        "PATH": ":".join(map(str, search)),
        "DEBOOTSTRAP_DIR": str(root / "usr/share/debootstrap"),
    }
    _check(buildah)
    return Building(buildah, root / "usr/sbin/debootstrap", env, _mirror())


def _find_libraries(unpacked: Path, root: Path) -> None:
    """Write into buildah where its libraries will be: below the root.

    A variable such as LD_LIBRARY_PATH is not enough: for each RUN, buildah starts a copy of itself
    in memory with an environment of its own. For the same reason `$ORIGIN` is not enough.
    """
    patchelf = _unpacked("patchelf") / "usr/bin/patchelf"
    folders = (*unpacked.glob("usr/lib/*-linux-gnu"), *unpacked.glob("lib/*-linux-gnu"))
    search = ":".join(str(root / folder.relative_to(unpacked)) for folder in folders)
    buildah = unpacked / "usr/bin/buildah"
    _run(str(patchelf), "--force-rpath", "--set-rpath", search, str(buildah), cwd=unpacked)


def _mirror() -> str:
    wanted = ("--format", "$(SITE)", "Created-By: Packages", f"Release: {RELEASE}")
    sites = _run("apt-get", "indextargets", *wanted, cwd=_CACHE).split()
    if not sites:
        raise RuntimeError(f"apt has no source for {RELEASE}: the image's base is made of it")
    return sites[0]


def _unpacked(package: str) -> Path:
    root = _CACHE / package
    if not root.is_dir():
        _unpack(package, root)
    return root


def _unpack(
    name: str,
    root: Path,
    whole: Sequence[str] = (),
    finish: Callable[[Path, Path], None] | None = None,
) -> None:
    """Unpack a package; or several, with all that they need and this machine hasn't installed.

    `finish` gets the unpacked folder and the root that it becomes, before anybody else finds it.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RuntimeError(f"no {tool}: the end-to-end tests take {name} from Debian")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as made:
        folder = Path(made)
        # apt gives up root to fetch, and then needs a folder that is not root's alone.
        folder.chmod(0o777)
        _download(name, folder, whole)
        unpacked = folder / "whole"
        for archive in folder.glob("*.deb"):
            _run("dpkg-deb", "--extract", str(archive), str(unpacked), cwd=folder)
        if finish is not None:
            finish(unpacked, root)
        try:
            # In one step: whoever finds the folder finds all of it.
            unpacked.rename(root)
        except OSError:
            if not root.is_dir():
                raise


def _download(name: str, folder: Path, whole: Sequence[str]) -> None:
    command: tuple[str, ...] = ("apt-get", "download", "--quiet", name)
    if whole:
        (folder / "partial").mkdir(mode=0o777)
        how = ("--download-only", "--reinstall", "--no-install-recommends", "--yes", "--quiet")
        # Nothing is installed, so whoever installs meanwhile is in nobody's way.
        options = ("-o", f"Dir::Cache::archives={folder}", "-o", "Debug::NoLocking=true")
        command = ("apt-get", "install", *how, *options, *whole)
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
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout
