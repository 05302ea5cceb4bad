"""Steps that build: wheel and sdist, the image of this machine's architecture, and the chart."""

import re
import shutil
import sys
from datetime import UTC, datetime

from deploy.release.settings import ROOT, ReleaseError, Settings

_VERSIONS = {
    "deploy/chart/Chart.yaml, version": ("deploy/chart/Chart.yaml", r"^version: (.*)$"),
    "deploy/chart/Chart.yaml, appVersion": ("deploy/chart/Chart.yaml", r'^appVersion: "(.*)"$'),
    "Dockerfile, ARG VERSION": ("Dockerfile", r"^ARG VERSION=(.*)$"),
}
"""Places with a copy of the version: the file, and an expression for it."""


def check(settings: Settings) -> None:
    """Compare the tag, the chart and the Dockerfile with the version in pyproject.toml.

    Raises:
        ReleaseError: a place has another version.
    """
    tag = settings.need("TAG", "the tag of the release, such as v0.1.0")
    found = {"the tag": tag.removeprefix("v") if tag.startswith("v") else tag}
    for place, (file, pattern) in _VERSIONS.items():
        match = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        found[place] = match[1] if match else "none"
    wrong = [f"{place} has {text}" for place, text in found.items() if text != settings.version]
    if not tag.startswith("v") or wrong:
        raise ReleaseError(
            f"the version in pyproject.toml is {settings.version}, so the tag must be "
            f"v{settings.version}, and all places must have this version: {'; '.join(wrong)}"
        )


def python(settings: Settings) -> None:
    """Build wheel and sdist with the build backend that the image is built with."""
    environment = ROOT / "build" / "release" / "python"
    shutil.rmtree(environment, ignore_errors=True)
    settings.run(sys.executable, "-m", "venv", environment)
    interpreter = environment / "bin" / "python"
    settings.run(
        *(interpreter, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
        *("--require-hashes", "--only-binary=:all:", "-r", "image/build-requirements.txt"),
    )
    settings.run(
        *(interpreter, "-m", "hatchling", "build", "-d", settings.dist),
        more={"SOURCE_DATE_EPOCH": settings.epoch},
    )


def image(settings: Settings) -> None:
    """Build the image of this machine's architecture, and write it as an OCI archive.

    The time of the files and of the label is that of the commit.
    """
    created = datetime.fromtimestamp(int(settings.epoch), UTC)
    arguments = {
        "VERSION": settings.version,
        "REVISION": settings.revision,
        "CREATED": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        "BASE": settings.get("BASE_IMAGE"),
    }
    labels = {"url": settings.get("HOME_PAGE"), "source": settings.get("SOURCES")}
    words = [f"--build-arg={name}={value}" for name, value in arguments.items() if value]
    words += [
        f"--label=org.opencontainers.image.{name}={value}"
        for name, value in labels.items()
        if value
    ]
    buildah = settings.program("buildah")
    name = f"localhost/podgpu:{settings.version}-{settings.architecture}"
    settings.run(
        *(*buildah, "build", *settings.options("BUILDAH_BUILD_OPTIONS")),
        *("--timestamp", settings.epoch, *words, "--tag", name, "."),
    )
    file = settings.dist / f"podgpu-image-{settings.version}-{settings.architecture}.tar"
    file.unlink(missing_ok=True)
    settings.run(
        *(*buildah, "push", *settings.options("BUILDAH_PUSH_OPTIONS")),
        *(name, f"oci-archive:{file}:{settings.version}"),
    )


def sbom(settings: Settings) -> None:
    """List the packages of each image in `dist`, those of Debian and of Python, as SPDX."""
    for archive in settings.image_archives():
        settings.run(
            *(*settings.program("syft"), "scan", "--quiet", f"oci-archive:{archive}"),
            *("--source-name", "podgpu", "--source-version", settings.version),
            *("-o", f"spdx-json={archive.with_suffix('.spdx.json')}"),
        )


def chart(settings: Settings) -> None:
    """Package the chart, with the addresses of the settings."""
    folder = ROOT / "build" / "release" / "chart"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "deploy" / "chart", folder / "podgpu")
    lines = [(ROOT / "deploy" / "chart" / "Chart.yaml").read_text(encoding="utf-8")]
    if home := settings.get("HOME_PAGE"):
        lines.append(f"home: {home}\n")
    if sources := settings.get("SOURCES"):
        lines.append(f"sources: [{sources}]\n")
    (folder / "podgpu" / "Chart.yaml").write_text("".join(lines), encoding="utf-8")
    settings.run(*settings.program("helm"), "package", folder / "podgpu", "-d", folder)
    # The sdist has almost the same name.
    shutil.move(folder / f"podgpu-{settings.version}.tgz", settings.chart_archive)
