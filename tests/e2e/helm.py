"""Runs helm."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.manifests import Manifests
from tests.deploy.places import CHART

NAMESPACE = "podgpu"


class HelmError(Exception):
    """Helm failed; the text is its error output."""


class Helm:
    """The program helm; without a kubeconfig it has no cluster."""

    def __init__(self, program: Path, kubeconfig: Path | None = None) -> None:
        self._program = program
        self._kubeconfig = kubeconfig or Path("/dev/null")

    def against(self, kubeconfig: Path) -> "Helm":
        return Helm(self._program, kubeconfig)

    def run(self, *words: str) -> str:
        """Run a command and return its output.

        Raises:
            HelmError: the command failed.
        """
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                [self._program, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env={"HOME": home, "KUBECONFIG": str(self._kubeconfig), "PATH": "/usr/bin:/bin"},
            )
        if done.returncode != 0:
            raise HelmError(done.stderr)
        return done.stdout

    def with_values(self, *words: str, values: dict[str, Any] | None = None) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values or {}, file)
            file.flush()
            return self.run(*words, "-n", NAMESPACE, "-f", file.name)

    def template(self, values: dict[str, Any] | None = None, *more: str) -> Manifests:
        """Render the objects that are installed, without the pod of `helm test`."""
        return self._rendered(values, "--skip-tests", *more)

    def with_tests(self, values: dict[str, Any] | None = None) -> Manifests:
        """Render the objects that are installed, and the pod of `helm test`."""
        return self._rendered(values)

    def _rendered(self, values: dict[str, Any] | None, *more: str) -> Manifests:
        return Manifests(self.with_values("template", "podgpu", str(CHART), *more, values=values))
