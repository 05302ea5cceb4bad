"""Pack a root file system with Slurm, Podman and podgpu; run a program in it on a GPU machine.

    python3 -m tests.gpu.packed_root pack build/root.tar.xz     needs Debian, its mirror and PyPI
    python3 packed_root.py run root.tar.xz OUT SECONDS PROGRAM...   needs root and Python

For a machine without a network, where neither is installed. The program runs with this root file
system and the machine's devices, processes, cgroups and GPU driver; its folder /out is OUT. After
SECONDS it is stopped. All processes that it leaves are killed. Needs only Python, because the
machine has none of podgpu's dependencies. The variable `CGROUP2=1` mounts the kernel's cgroups of
version 2 where the machine uses version 1.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = (
    *("bash", "coreutils", "util-linux", "mount", "grep", "findutils", "sed", "procps", "libc-bin"),
    *("base-files", "passwd", "python3.11", "slurmctld", "slurmd", "slurm-client", "munge"),
    *("podman", "conmon", "runc", "busybox-static"),
)
UNUSED = (
    *("perl", "libperl", "libdb5", "gnupg", "gpg", "dirmngr", "pinentry", "dpkg", "debconf"),
    *("containernetworking", "iptables", "usrmerge", "ucf", "adduser", "libldap", "libksba"),
    *("libfile-find", "libtext-glob", "libnumber-compare", "media-types", "init-system", "mawk"),
    *("readline-common", "libsasl2-modules", "util-linux-extra", "dmsetup", "lsb-base", "tar_"),
)
"""Beginnings of the names of dependencies that no program of these uses here."""
PRUNED = (
    *("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian"),
    *("usr/lib/x86_64-linux-gnu/gconv", "usr/lib/podman", "usr/games", "usr/include", "usr/src"),
    *("usr/lib/python3.11/pydoc_data", "usr/lib/python3.11/lib2to3", "usr/lib/python3.11/unittest"),
    *("usr/lib/python3.11/distutils", "usr/lib/python3.11/tkinter"),
)
"""Folders that no program of these uses here."""
CODE = ("podgpu", "config", "pipeline", "sources", "sinks", "deploy/slurm")
HEAVY = ("recorded_splits", "golden", "demo", "peers", "docs", "deploy", "pipeline", "__pycache__")
"""Folders of the tests that the pack leaves out."""
LEFT_OUT = ("kubernetes-asyncio", "grpcio", "duckdb", "obstore", "opentelemetry-proto", "bcrypt")
"""Requirements that podgpu loads only for Kubernetes, OTLP, archives and passwords."""
USERS = "root:x:0:0:root:/root:/bin/bash\ngames:x:5:60:games:/usr/games:/usr/sbin/nologin\n"
GROUPS = "root:x:0:\ntty:x:5:\ngames:x:60:\n"
HERE = "/podgpu"
"""Folder of the code in the root file system."""

_PODGPU = "#!/usr/bin/python3\nimport sys\nfrom podgpu.cli import program\nsys.exit(program())\n"
_DRIVER = Path("/usr/local/nvidia")
_ENTER = """\
set -e
root=$1 out=$2; shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
mount --bind /sys "$root/sys"
if [ -n "$CGROUP2" ]; then mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"; fi
mount --bind "$out" "$root/out"
if [ -n "$DRIVER" ]; then mount --rbind /usr/local/nvidia "$root/usr/local/nvidia"; fi
exec chroot "$root" /bin/sh -c '/sbin/ldconfig; cd /podgpu; exec "$@"' sh "$@"
"""


def pack(target: Path) -> None:
    """Make the file."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        root = folder / "root"
        _packages(folder, root)
        _python(root)
        _code(root)
        for name in ("dev", "proc", "sys", "out", "tmp", "run", "root", "usr/local/nvidia"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "tmp").chmod(0o1777)
        target.parent.mkdir(parents=True, exist_ok=True)
        _call(
            "tar",
            "-C",
            str(root),
            "-c",
            "-I",
            "xz -9",
            "-f",
            str(target.resolve()),
            ".",
        )
    print(json.dumps({"file": str(target), "bytes": target.stat().st_size}))


def _packages(folder: Path, root: Path) -> None:
    """Unpack the packages and their dependencies, as if nothing were installed."""
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    for path in (archives, archives / "partial"):
        path.chmod(0o777)  # apt downloads as another user
    (folder / "status").touch()
    options = (f"Dir::State::status={folder / 'status'}", f"Dir::Cache::archives={archives}")
    how = ("--download-only", "--no-install-recommends", "--yes", "-qq", "-o", "Debug::NoLocking=1")
    _call("apt-get", "install", *how, *(f"-o{one}" for one in options), *PROGRAMS)
    for archive in sorted(archives.glob("*.deb")):
        if not archive.name.startswith(UNUSED):
            _call("dpkg-deb", "--extract", str(archive), str(root))
    for name in PRUNED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        # As on an installed machine, these folders are links to those below /usr.
        if (root / name).is_dir():
            shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / name)
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr/bin/sh").unlink(missing_ok=True)
    (root / "usr/bin/sh").symlink_to("bash")
    for name in ("slurmctld", "slurmd", "slurmstepd"):
        (root / "usr/sbin" / name).symlink_to(f"{name}-wlm")
    for name in ("passwd", "group", "nsswitch.conf", "hosts", "resolv.conf"):
        (root / "etc" / name).unlink(missing_ok=True)
    (root / "etc/passwd").write_text(USERS)
    (root / "etc/group").write_text(GROUPS)
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "etc/resolv.conf").touch()
    driver = "/usr/local/nvidia/lib64\n/usr/local/nvidia/lib\n"
    (root / "etc/ld.so.conf.d/nvidia.conf").write_text(driver)


def _python(root: Path) -> None:
    """Install podgpu's dependencies for the Python of the packages."""
    (root / "usr/bin/python3").symlink_to("python3.11")
    site = root / "usr/local/lib/python3.11/dist-packages"
    wanted = [
        line.split(" ")[0]
        for line in Path("requirements.txt").read_text().splitlines()
        if "==" in line and not line.startswith(("#", " ", *LEFT_OUT))
    ]
    wanted += ["prometheus-client", "nvidia-nvml-dev"]
    version = ("--only-binary=:all:", "--python-version", "3.11")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps")
    _call(*pip, "--no-compile", "--target", str(site), *version, *wanted)
    (site / "podgpu.pth").write_text(f"{HERE}\n")
    program = root / "usr/bin/podgpu"
    program.write_text(_PODGPU)
    program.chmod(0o755)


def _code(root: Path) -> None:
    """Copy the code, and let the tests find their programs in this root file system."""
    there = root / HERE[1:]
    for name in CODE:
        shutil.copytree(name, there / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree("tests", there / "tests", ignore=shutil.ignore_patterns(*HEAVY))
    (there / "build/e2e").mkdir(parents=True)
    for name in ("slurm", "podman", "runc", "containernetworking-plugins", "busybox-static"):
        (there / "build/e2e" / name).symlink_to("/")
    # The simulated NVML, with which the run is tried on a machine without a GPU.
    build = "from tests.fakes.nvml.build import build; print(build())"
    made = subprocess.run(
        [sys.executable, "-c", build], stdout=subprocess.PIPE, text=True, check=True
    )
    library = Path(made.stdout.strip())
    shutil.copytree(library, there / library.relative_to(Path.cwd()))


def run(packed: Path, out: Path, seconds: float, program: list[str]) -> int:
    """Run a program with the root file system; return its status."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="packed-root-") as folder:
        root = Path(folder) / "root"
        root.parent.chmod(0o755)
        with tarfile.open(packed) as archive:
            archive.extractall(root, filter="fully_trusted")  # noqa: S202 - our own
        print(f"unpacked in {time.monotonic() - began:.1f} s", flush=True)
        enter = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh")
        env = {"PATH": "/usr/local/nvidia/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        env |= {"DRIVER": "1" if _driver(root) else "", "CGROUP2": os.environ.get("CGROUP2", "")}
        process = subprocess.Popen([*enter, root, out.resolve(), *program], env=env)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"stopped after {seconds:g} s", flush=True)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(15) or 1
            return 1
        finally:
            for pid in _left(folder):
                print(f"killed {pid}: {_command(pid)}", flush=True)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


def _driver(root: Path) -> bool:
    """Let the programs find the driver; return whether its folder has to be mounted."""
    folders = {file.parent for file in _DRIVER.rglob("libcuda.so.1")}
    if folders:
        text = "".join(f"{folder}\n" for folder in sorted(folders))
        (root / "etc/ld.so.conf.d/nvidia.conf").write_text(text)
        return True
    # The driver is among the machine's other libraries.
    cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = [line.split(" => ")[1] for line in cache.splitlines() if "libcuda.so.1" in line]
    target = root / _DRIVER.relative_to("/")
    for name in ("bin", "lib64"):
        (target / name).mkdir(parents=True, exist_ok=True)
    for library in found[:1]:
        folder = Path(library).resolve().parent
        for file in (*folder.glob("libcuda.so*"), *folder.glob("libnvidia-*.so*")):
            shutil.copy(file, target / "lib64" / file.name)
    if program := shutil.which("nvidia-smi"):
        shutil.copy(program, target / "bin")
    return False


def _left(folder: str) -> Iterator[int]:
    """Yield the processes whose root, or that of their mount namespace, is in a folder."""
    own = Path("/proc/self/ns/mnt").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mounts = process.joinpath("mountinfo").read_text()
            other = (process / "ns/mnt").readlink() != own
        except OSError:
            continue
        if other and Path(folder).name in mounts:
            yield int(process.name)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200]
    return ""


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("target", type=Path)
    running = commands.add_parser("run")
    running.add_argument("packed", type=Path)
    running.add_argument("out", type=Path)
    running.add_argument("seconds", type=float)
    running.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.command == "pack":
        pack(arguments.target)
        return 0
    return run(arguments.packed, arguments.out, arguments.seconds, arguments.program)


if __name__ == "__main__":
    sys.exit(main())
