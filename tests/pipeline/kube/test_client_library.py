"""The Kubernetes client library loads without its generated modules, and only for a kubeconfig."""

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
from pipeline.kube.client_library import kubeconfig_reader
assert callable(kubeconfig_reader())
generated = [name for name in sys.modules if name.startswith(
    ("kubernetes_asyncio.client.models", "kubernetes_asyncio.client.api"))]
print(kilobytes() - before, len(generated))
"""


def run(program: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_no_generated_module_is_loaded_and_memory_stays_low() -> None:
    added_kilobytes, generated = map(int, run(MEASURE).split())
    assert generated == 0
    assert added_kilobytes < 6_000


LOAD = "from pipeline.kube.client_library import kubeconfig_reader\nprint(kubeconfig_reader())"


@pytest.mark.slow
def test_a_library_that_is_already_imported_is_used() -> None:
    assert "load_kube_config" in run("import kubernetes_asyncio\n" + LOAD)


@pytest.mark.slow
def test_credentials_of_a_pod_need_no_library() -> None:
    program = """
import sys
from pathlib import Path
from pipeline.base.errors import TransientError
from pipeline.kube.client import Client
from pipeline.kube.credentials import ServiceAccount
try:
    ServiceAccount(Path("/nowhere"), {}).load(reload=False)
except TransientError as error:
    print("KUBERNETES_SERVICE_HOST" in str(error), "kubernetes_asyncio" in sys.modules)
"""
    assert run(program) == "True False\n"
