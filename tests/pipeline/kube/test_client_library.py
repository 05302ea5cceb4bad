"""The Kubernetes client library loads without its generated modules, unless it needs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MEASURE = """
import sys
def kilobytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:"))
import aiohttp.web, asyncio, json, logging, yaml
before = kilobytes()
from pipeline.kube.client_library import library
parts = library()
assert callable(parts.configuration) and callable(parts.rest) and callable(parts.in_cluster)
assert callable(parts.kubeconfig) and library() is parts
generated = [name for name in sys.modules if name.startswith(
    ("kubernetes_asyncio.client.models", "kubernetes_asyncio.client.api"))]
print(kilobytes() - before, len(generated))
"""


def run(program: str, path: Path = ROOT) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_no_generated_module_is_loaded_and_memory_stays_low() -> None:
    added_kilobytes, generated = map(int, run(MEASURE).split())
    assert generated == 0
    assert added_kilobytes < 6_000


@pytest.fixture
def fake_library(tmp_path: Path) -> Path:
    """Return a folder with a small client library that prints which of its packages ran."""
    files = {
        "__init__.py": "print('whole')",
        "client/__init__.py": "print('client')\nConfiguration = ApiClient = int\nmarker = 1",
        "client/configuration.py": "Configuration = int",
        "client/rest.py": "RESTClientObject = int",
        "config/__init__.py": "",
        "config/incluster_config.py": "from kubernetes_asyncio.client import Configuration\n"
        "InClusterConfigLoader = Configuration",
        "config/kube_config.py": "from kubernetes_asyncio.client import ApiClient, Configuration\n"
        "load_kube_config = ApiClient",
    }
    for name, text in files.items():
        path = tmp_path / "kubernetes_asyncio" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


LOAD = "from pipeline.kube.client_library import library\nprint(library().rest)"


def test_packages_are_registered_without_running_their_init_modules(fake_library: Path) -> None:
    assert run(LOAD, fake_library).split("\n")[:-1] == ["<class 'int'>"]


def test_a_library_that_is_already_imported_is_used(fake_library: Path) -> None:
    output = run("import kubernetes_asyncio\n" + LOAD, fake_library).split("\n")[:-1]
    assert output == ["whole", "client", "<class 'int'>"]


@pytest.mark.parametrize("broken", ["configuration", "rest"])
def test_a_library_that_needs_its_whole_package_is_loaded_completely(
    fake_library: Path, broken: str
) -> None:
    path = fake_library / "kubernetes_asyncio" / "client" / f"{broken}.py"
    path.write_text("from kubernetes_asyncio.client import marker\n" + path.read_text())
    assert run(LOAD, fake_library).split("\n")[:-1] == ["whole", "client", "<class 'int'>"]


def test_a_library_without_the_expected_packages_raises_an_error_with_the_name(
    fake_library: Path,
) -> None:
    client = fake_library / "kubernetes_asyncio" / "client"
    client.rename(client.with_name("clients"))
    with pytest.raises(AssertionError, match=r"No module named 'kubernetes_asyncio\.client'"):
        run(LOAD, fake_library)
