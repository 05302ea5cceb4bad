"""Programs from Debian's packages, which are unpacked below build/ and not installed.

Installing a package would start a service and leave a user and a configuration on the machine.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CACHE = Path(__file__).resolve().parents[2] / "build" / "e2e"
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

RELEASE = "bookworm"
"""The Debian release of the programs and of the image's base."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Paths of the programs of Debian's package `prometheus`."""

    server: Path
    promtool: Path


def prometheus() -> Prometheus:
    """Return the programs; download them first if they are missing."""
    root = _unpacked("prometheus")
    found = Prometheus(root / "usr/bin/prometheus", root / "usr/bin/promtool")
    for program in (found.server, found.promtool):
        _check(program)
    return found


@dataclass(frozen=True, slots=True)
class Runtime:
    """The programs that containerd needs to run a container, and busybox for the container."""

    runc: Path
    cni_plugins: Path
    """The folder of the CNI plugins."""
    busybox: Path
    """Statically linked, because a container has no other file."""


def runtime() -> Runtime:
    """Return the programs; download them first if they are missing."""
    found = Runtime(
        runc=_unpacked("runc") / "usr/sbin/runc",
        cni_plugins=_unpacked("containernetworking-plugins") / "usr/lib/cni",
        busybox=_unpacked("busybox-static") / "bin/busybox",
    )
    _check(found.runc)
    return found


def faketime() -> Path:
    """Return the library that changes the wall clock of programs; download it first if missing."""
    return next(_unpacked("libfaketime").glob("usr/lib/*/faketime/libfaketimeMT.so.1"))


@dataclass(frozen=True, slots=True)
class Building:
    """The programs that build images, `buildah` and `debootstrap`, and their variables."""

    buildah: Path
    debootstrap: Path
    env: Mapping[str, str]
    mirror: str
    """The address from which apt downloads packages."""


def building() -> Building:
    """Return the programs; download them first if they are missing."""
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
    """Set the library path of buildah to the folders below the root.

    LD_LIBRARY_PATH is not sufficient: for each RUN, buildah starts a copy of itself from memory
    with a new environment. For the same reason `$ORIGIN` is not sufficient.
    """
    patchelf = _unpacked("patchelf") / "usr/bin/patchelf"
    folders = (*unpacked.glob("usr/lib/*-linux-gnu"), *unpacked.glob("lib/*-linux-gnu"))
    search = ":".join(str(root / folder.relative_to(unpacked)) for folder in folders)
    buildah = unpacked / "usr/bin/buildah"
    _run(str(patchelf), "--force-rpath", "--set-rpath", search, str(buildah), cwd=unpacked)


def shells_and_systemd() -> Path:
    """Return a folder with the part of /usr that zsh, fish and systemd need; download it first."""
    root = _CACHE / "shells"
    if not root.is_dir():
        _unpack("shells", root, ("zsh", "fish", "systemd"), finish=_merge_usr)
    return root / "usr"


@dataclass(frozen=True, slots=True)
class Slurm:
    """The folders of the programs of Slurm and munge, and the variable that they need."""

    bin: Path
    sbin: Path
    plugins: Path
    env: Mapping[str, str]


def slurm() -> Slurm:
    """Return the programs; download them first if they are missing."""
    root = _CACHE / "slurm"
    if not root.is_dir():
        packages = ("slurmctld", "slurmd", "slurm-client", "munge")
        _unpack("slurm", root, packages, finish=_name_daemons)
    libraries = next(root.glob("usr/lib/*/slurm-wlm"))
    path = f"{libraries.parent}:{libraries}"
    found = Slurm(root / "usr/bin", root / "usr/sbin", libraries, {"LD_LIBRARY_PATH": path})
    for program in (found.sbin / "slurmctld", found.sbin / "munged", found.bin / "srun"):
        _check(program, found.env)
    return found


def _name_daemons(unpacked: Path, _root: Path) -> None:
    """Give Slurm's daemons their names: they decide by their own name which plugins they load."""
    for name in ("slurmctld", "slurmd", "slurmstepd"):
        (unpacked / "usr/sbin" / name).symlink_to(f"{name}-wlm")


@dataclass(frozen=True, slots=True)
class Podman:
    """Podman, the programs that it starts, and the variable that it needs."""

    podman: Path
    conmon: Path
    policy: Path
    """The file that says from where images may come."""
    env: Mapping[str, str]


def podman() -> Podman:
    """Return the programs; download them first if they are missing."""
    root = _CACHE / "podman"
    if not root.is_dir():
        _unpack("podman", root, ("podman", "conmon"))
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    found = Podman(
        root / "usr/bin/podman",
        root / "usr/bin/conmon",
        root / "etc/containers/policy.json",
        {"LD_LIBRARY_PATH": str(libraries)},
    )
    _check(found.podman, found.env)
    _check(found.conmon)
    return found


@dataclass(frozen=True, slots=True)
class Docker:
    """Docker's client and daemon, and the folders of the programs that the daemon starts."""

    client: Path
    daemon: Path
    path: str


def docker() -> Docker:
    """Return the programs; download them first if they are missing."""
    root = _CACHE / "docker"
    if not root.is_dir():
        _unpack("docker", root, ("docker.io", "containerd", "runc"))
    folders = (root / "usr/bin", root / "usr/sbin")
    found = Docker(folders[0] / "docker", folders[1] / "dockerd", ":".join(map(str, folders)))
    for program in (found.client, found.daemon, folders[1] / "runc"):
        _check(program)
    return found


def _merge_usr(unpacked: Path, _root: Path) -> None:
    """Move files to the paths that they have on a machine where /bin and /lib are links."""
    for name in ("bin", "sbin", "lib"):
        if (unpacked / name).is_dir():
            shutil.copytree(
                unpacked / name, unpacked / "usr" / name, symlinks=True, dirs_exist_ok=True
            )


def _mirror() -> str:
    wanted = ("--format", "$(SITE)", "Created-By: Packages", f"Release: {RELEASE}")
    sites = _run("apt-get", "indextargets", *wanted, cwd=_CACHE).split()
    if not sites:
        raise RuntimeError(f"apt has no source for {RELEASE}, which the image's base needs")
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
    """Unpack a package, or several with their dependencies that are not installed here.

    `finish` is called with the unpacked folder and its final path, before the folder is moved
    there.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RuntimeError(f"no {tool}: the end-to-end tests take {name} from Debian")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as made:
        folder = Path(made)
        # apt downloads without root, so the folder must be writable for other users.
        folder.chmod(0o777)
        _download(name, folder, whole)
        unpacked = folder / "whole"
        for archive in folder.glob("*.deb"):
            _run("dpkg-deb", "--extract", str(archive), str(unpacked), cwd=folder)
        if finish is not None:
            finish(unpacked, root)
        try:
            # Atomic: other runs find either no folder or a complete one.
            unpacked.rename(root)
        except OSError:
            if not root.is_dir():
                raise


def _download(name: str, folder: Path, whole: Sequence[str]) -> None:
    command: tuple[str, ...] = ("apt-get", "download", "--quiet", name)
    if whole:
        (folder / "partial").mkdir(mode=0o777)
        how = ("--download-only", "--reinstall", "--no-install-recommends", "--yes", "--quiet")
        # Nothing is installed, so a concurrent installation does not conflict.
        options = ("-o", f"Dir::Cache::archives={folder}", "-o", "Debug::NoLocking=true")
        command = ("apt-get", "install", *how, *options, *whole)
    try:
        _run(*command, cwd=folder)
    except RuntimeError:
        # The package lists are missing, or name a version that was replaced.
        _run("apt-get", "update", "--quiet", cwd=folder)
        _run(*command, cwd=folder)


def _check(program: Path, env: Mapping[str, str] | None = None) -> None:
    """Assert that the loader finds every library, because dependencies are not installed."""
    listed = _run("ldd", str(program), cwd=program.parent, env=env)
    missing = [line.strip() for line in listed.splitlines() if "not found" in line]
    if missing:
        raise RuntimeError(f"{program} lacks libraries: {', '.join(missing)}")


def _run(*command: str, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout
