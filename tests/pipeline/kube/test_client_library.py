"""The library loads without its thousand modules, and with them where it must."""

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


def test_none_of_the_generated_modules_is_loaded() -> None:
    grown, generated = map(int, run(MEASURE).split())
    assert generated == 0
    assert grown < 6_000


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return a folder with a library that says which of its packages ran."""
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


def test_packages_are_put_into_place_without_running(release: Path) -> None:
    assert run(LOAD, release).split("\n")[:-1] == ["<class 'int'>"]


def test_a_package_that_is_there_already_is_used_as_it_is(release: Path) -> None:
    said = run("import kubernetes_asyncio\n" + LOAD, release).split("\n")[:-1]
    assert said == ["whole", "client", "<class 'int'>"]


@pytest.mark.parametrize("broken", ["configuration", "rest"])
def test_a_release_that_needs_its_whole_package_gets_it(release: Path, broken: str) -> None:
    path = release / "kubernetes_asyncio" / "client" / f"{broken}.py"
    path.write_text("from kubernetes_asyncio.client import marker\n" + path.read_text())
    assert run(LOAD, release).split("\n")[:-1] == ["whole", "client", "<class 'int'>"]


def test_a_release_without_such_packages_is_named_by_what_it_lacks(release: Path) -> None:
    client = release / "kubernetes_asyncio" / "client"
    client.rename(client.with_name("clients"))
    with pytest.raises(AssertionError, match=r"No module named 'kubernetes_asyncio\.client'"):
        run(LOAD, release)
