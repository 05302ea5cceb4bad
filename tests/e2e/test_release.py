"""A release, made by the commands of the workflow, and installed as users install it.

The registry is one on loopback. Keyless signing and the upload need services of the internet, and
arm64 needs such a machine; these are not tested.
"""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.version import VERSION
from tests.e2e import image, peers
from tests.e2e.helm import Helm
from tests.e2e.kube.full_cluster import missing_rights
from tests.e2e.processes import Process, free_ports, wait_until

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))

_SLOW = pytest.mark.timeout(900)
"""For the first test that builds the image, which takes a minute on two idle cores."""

_SETTINGS = {
    "TAG": f"v{VERSION}",
    "HOME_PAGE": "https://podgpu.example",
    "SOURCES": "https://sources.example/podgpu",
    "SOURCE_DATE_EPOCH": "1795824000",
}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actionlint_finds_no_error_in_a_workflow(workflow: Path) -> None:
    done = subprocess.run(
        [peers.actionlint(), "-no-color", workflow], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_actionlint_is_able_to_find_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    text = (ROOT / ".github" / "workflows" / "release.yaml").read_text(encoding="utf-8")
    broken.write_text(text.replace("needs: [test, packages, image]", "needs: [test, absent]"))
    done = subprocess.run(
        [peers.actionlint(), "-no-color", broken], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "absent" in done.stdout


@dataclass(frozen=True)
class Release:
    """The artefacts of a release, made by `make release-STEP`."""

    dist: Path
    env: Mapping[str, str]

    def make(self, *steps: str, **env: str) -> str:
        """Run steps and return their output."""
        done = subprocess.run(
            ["make", *(f"release-{step}" for step in steps), f"PYTHON={sys.executable}"],
            cwd=ROOT,
            env={**os.environ, **self.env, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def one(self, pattern: str) -> Path:
        (found,) = self.dist.glob(pattern)
        return found


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release")
    return Release(folder, {**_SETTINGS, "DIST": str(folder), "HELM": str(peers.helm())})


@pytest.fixture(scope="module")
def packages(release: Release) -> Release:
    release.make("check", "python", "chart")
    return release


@pytest.fixture(scope="module")
def wheels() -> Path:
    """A folder with all packages that podgpu needs."""
    if missing_rights():
        pytest.skip(f"an image cannot be built: {missing_rights()}")
    with image.tool():
        return image.WHEELS


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs pipx and uv."""
    folder = tmp_path_factory.mktemp("installers")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "-q", "pipx", "uv"], check=True)
    return folder / "bin"


@_SLOW
@pytest.mark.parametrize("words", [("pipx", "install"), ("uv", "tool", "install")], ids=" ".join)
def test_the_wheel_is_installed_as_a_program(
    packages: Release, wheels: Path, installers: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    wheel = str(packages.one("*.whl"))
    env = {
        **{name: text for name, text in os.environ.items() if not name.startswith("PYTHON")},
        "HOME": str(tmp_path),
        "PATH": f"{installers}:{os.environ['PATH']}",
        # In place of the network.
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
        "UV_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [*words, wheel], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    program = tmp_path / ".local" / "bin" / "podgpu"
    version = subprocess.run(
        [program, "--version"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (version.returncode, version.stdout) == (0, f"podgpu {VERSION}\n")
    # In an environment of its own, the common package names are not visible to other programs.
    outside = subprocess.run(
        [installers / "python", "-c", "import sinks"], env=env, cwd=tmp_path, check=False
    )
    assert outside.returncode == 1
    assert program.resolve().is_relative_to(tmp_path)


def test_the_sdist_builds_the_same_wheel(packages: Release, tmp_path: Path) -> None:
    with tarfile.open(packages.one("*.tar.gz")) as tar:
        tar.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert not (source / "tests").exists(), "only the packages and their documentation"
    assert (source / "docs" / "index.md").is_file()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": _SETTINGS["SOURCE_DATE_EPOCH"]},
        check=True,
    )
    (made,) = tmp_path.glob("*.whl")
    assert made.read_bytes() == packages.one("*.whl").read_bytes()


@_SLOW
def test_the_wheel_runs_the_demo_in_a_clean_container(
    packages: Release, wheels: Path, tmp_path: Path
) -> None:
    """The container has Debian's Python, and nothing else of podgpu."""
    (port,) = free_ports(1)
    wheel, stop = packages.one("*.whl"), packages.dist / "stop"
    install = f"python3 -m venv /opt/one && /opt/one/bin/pip install -q /dist/{wheel.name}"
    # buildah forwards no signal.
    run = (
        f"/opt/one/bin/podgpu demo --listen 127.0.0.1:{port} & pid=$!; "
        "until [ -e /dist/stop ]; do sleep 0.2; done; kill $pid; wait $pid"
    )
    with image.container({wheels: "/mnt", packages.dist: "/dist"}) as command:
        subprocess.run([*command, "sh", "-c", install], check=True)
        demo = Process([*command, "sh", "-c", run], tmp_path / "demo.log")
        try:
            wait_until(lambda: demo.answers(port, "/healthz"), "the demo", seconds=120)
            wait_until(
                lambda: (
                    (found := demo.answers(port, "/metrics")) is not None
                    and b"DCGM_FI_DEV_GPU_TEMP{" in found.body
                ),
                "the demo's GPUs",
            )
        finally:
            stop.touch()
            status = demo.wait()
            stop.unlink()
    assert status == 0, demo.output()


@_SLOW
def test_all_packages_of_the_image_exist_for_arm64_with_the_pinned_hashes(tmp_path: Path) -> None:
    """Only the packages: the image itself is not built here for another architecture."""
    files = (ROOT / "requirements.txt", ROOT / "image" / "build-requirements.txt")
    # pip takes exactly these. Debian 12 has glibc 2.36.
    versions = ("2014", *(f"_2_{minor}" for minor in range(17, 37)))
    systems = [f"manylinux{version}_aarch64" for version in versions]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", tmp_path),
            *("--require-hashes", "--only-binary=:all:", "--python-version", "3.11"),
            *(word for system in systems for word in ("--platform", system)),
            *(word for file in files for word in ("-r", str(file))),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert any("aarch64" in file.name for file in tmp_path.iterdir())


# The image and the chart, by way of a registry.


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an empty registry, without TLS."""
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("registry")
    server = Process(
        [peers.crane(), "registry", "serve", "--address", f"127.0.0.1:{port}"],
        folder / "registry.log",
    )
    server.wait_for_answer(port, "/v2/")
    yield f"127.0.0.1:{port}/owner"
    server.stop()


@pytest.fixture(scope="module")
def pushed(packages: Release, wheels: Path, registry: str) -> Release:
    """The release, with this machine's image, in the registry."""
    with image.tool() as building:
        env = {
            **building.env,
            "REGISTRY": registry,
            "BASE_IMAGE": building.base,
            "BUILDAH": building.command,
            "BUILDAH_BUILD_OPTIONS": f"--pull-never --volume={wheels}:/mnt:ro",
            "BUILDAH_PUSH_OPTIONS": "--tls-verify=false",
            "HELM_PUSH_OPTIONS": "--plain-http",
        }
        packages.make("image", **env)
        packages.make("push", **env)
    return packages


def crane(*words: str) -> Any:
    done = subprocess.run(
        [peers.crane(), words[0], "--insecure", *words[1:]],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@_SLOW
def test_the_pushed_image_has_labels_and_the_digest_of_the_archive(
    pushed: Release, registry: str
) -> None:
    digests = json.loads((pushed.dist / "digests.json").read_text())
    index = crane("manifest", f"{registry}/podgpu@{digests[f'{registry}/podgpu']}")
    (entry,) = index["manifests"]
    assert entry["platform"]["architecture"] in {"amd64", "arm64"}
    with tarfile.open(pushed.one("podgpu-image-*.tar")) as tar:
        content = tar.extractfile("index.json")
        assert content is not None
        (inside,) = json.load(content)["manifests"]
    assert entry["digest"] == inside["digest"]
    labels = crane("config", f"{registry}/podgpu:{VERSION}")["config"]["Labels"]
    begin = "org.opencontainers.image."
    assert labels[f"{begin}version"] == VERSION
    assert labels[f"{begin}url"] == _SETTINGS["HOME_PAGE"]
    assert labels[f"{begin}source"] == _SETTINGS["SOURCES"]
    assert labels[f"{begin}created"] == "2026-11-28T00:00:00Z"


@_SLOW
def test_helm_installs_the_chart_from_the_registry(
    pushed: Release, registry: str, helm: Helm
) -> None:
    chart = f"oci://{registry}/charts/podgpu"
    words = ("--plain-http", "--version", VERSION)
    about = helm.run("show", "chart", chart, *words)
    assert f"home: {_SETTINGS['HOME_PAGE']}\n" in about
    assert "maintainers" not in about
    made = helm.run(
        *("template", "podgpu", chart, *words, "-n", "podgpu"),
        *("--set", f"image.repository={registry}/podgpu"),
    )
    assert f'image: "{registry}/podgpu:{VERSION}"' in made


@pytest.fixture(scope="module")
def cosign() -> Path:
    return peers.cosign()


@pytest.fixture(scope="module")
def syft() -> Path:
    return peers.syft()


@pytest.mark.more
@_SLOW
def test_sbom_provenance_and_signatures_with_a_local_key(
    pushed: Release, registry: str, cosign: Path, syft: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "COSIGN_PASSWORD": ""}
    subprocess.run([cosign, "generate-key-pair"], cwd=tmp_path, env=env, check=True)
    settings = {
        "REGISTRY": registry,
        "SYFT": str(syft),
        "COSIGN": str(cosign),
        "COSIGN_PASSWORD": "",
        "SIGNING_KEY": str(tmp_path / "cosign.key"),
        # No public log is used: it would need the internet.
        "COSIGN_OPTIONS": "--tlog-upload=false --use-signing-config=false",
        "COSIGN_REGISTRY_OPTIONS": "--allow-insecure-registry",
        "VERIFY_OPTIONS": f"--key {tmp_path}/cosign.pub --insecure-ignore-tlog=true",
    }
    pushed.make("sbom", "sums", "provenance", "sign", "verify", **settings)
    document = json.loads(pushed.one("*.spdx.json").read_text())
    names = {package["name"] for package in document["packages"]}
    assert {"podgpu", "aiohttp", "libc6"} <= names
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=pushed.dist, check=False)
    assert done.returncode == 0
    # Another key does not verify.
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run([cosign, "generate-key-pair"], cwd=other, env=env, check=True)
    with pytest.raises(AssertionError):
        pushed.make(
            "verify",
            **{**settings, "VERIFY_OPTIONS": f"--key {other}/cosign.pub --insecure-ignore-tlog"},
        )
