"""The settings of a release, which are environment variables, and the commands that it runs."""

import os
import platform
import shlex
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of machines by the kernel, and in OCI images."""


class ReleaseError(Exception):
    """A step is not possible; the text names the reason and the fix."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the steps of a release need; an empty text means that it is not set."""

    version: str
    """The version in pyproject.toml."""
    dist: Path
    """The folder of the artefacts."""
    env: Mapping[str, str]

    @classmethod
    def read(cls, env: Mapping[str, str] | None = None) -> Self:
        """Return the settings of this process, or of `env`.

        Variables: `DIST`, the folder of the artefacts (default `dist`); `TAG`, the tag of the
        release; `REGISTRY`, such as HOST/OWNER; `HOME_PAGE` and `SOURCES`, addresses for the labels
        of the image and for the chart; `BASE_IMAGE`; `SIGNING_KEY`, a file, without which signing
        is keyless; `BUILDAH`, `HELM`, `COSIGN`, `SYFT`, the programs with options;
        `BUILDAH_BUILD_OPTIONS`, `BUILDAH_PUSH_OPTIONS`, `HELM_PUSH_OPTIONS`, `COSIGN_OPTIONS`.
        """
        found = os.environ if env is None else env
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        dist = ROOT / found.get("DIST", "dist")
        dist.mkdir(parents=True, exist_ok=True)
        return cls(project["project"]["version"], dist, found)

    def get(self, name: str) -> str:
        """Return a variable, or an empty text."""
        return self.env.get(name, "").strip()

    def need(self, name: str, meaning: str) -> str:
        """Return a variable that has no default.

        Raises:
            ReleaseError: it is not set.
        """
        value = self.get(name)
        if not value:
            raise ReleaseError(f"{name} is not set: set it to {meaning}")
        return value

    def program(self, name: str) -> list[str]:
        """Return the words of a program such as `buildah`; the variable `BUILDAH` replaces it."""
        return shlex.split(self.get(name.upper()) or name)

    def options(self, name: str) -> list[str]:
        """Return the words of a variable with options."""
        return shlex.split(self.get(name))

    @property
    def registry(self) -> str:
        """The registry and the owner in it, such as HOST/OWNER."""
        return self.need("REGISTRY", "the registry and owner, such as HOST/OWNER")

    @property
    def architecture(self) -> str:
        """The machine's architecture, as images name it."""
        machine = platform.machine()
        return _ARCHITECTURES.get(machine, machine)

    @property
    def revision(self) -> str:
        """The commit of the sources; empty outside of a repository without `REVISION`."""
        return self.get("REVISION") or self._git("rev-parse", "HEAD")

    @property
    def epoch(self) -> str:
        """The time of the artefacts in seconds since 1970: `SOURCE_DATE_EPOCH`, or the commit's."""
        return self.get("SOURCE_DATE_EPOCH") or self._git("log", "-1", "--format=%ct")

    def image_archives(self) -> list[Path]:
        """Return the OCI archives of this version's images, one per architecture."""
        found = sorted(self.dist.glob(f"podgpu-image-{self.version}-*.tar"))
        if not found:
            raise ReleaseError(f"no image in {self.dist}: run `make release-image` first")
        return found

    @property
    def chart_archive(self) -> Path:
        """The file of this version's chart."""
        return self.dist / f"podgpu-chart-{self.version}.tgz"

    def run(self, *words: str | Path, more: Mapping[str, str] | None = None) -> str:
        """Print a command, run it in the root of the repository, and return its output.

        Raises:
            ReleaseError: it failed, or the program is missing.
        """
        command = [str(word) for word in words]
        print("+", shlex.join(command), flush=True)
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**self.env, **(more or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise ReleaseError(f"{command[0]} is not installed: install it") from error
        print(done.stdout, end="", flush=True)
        if done.returncode != 0:
            raise ReleaseError(f"{command[0]} failed with status {done.returncode}, see above")
        return done.stdout

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()
