"""Secrets of credential plugins and of token and password files appear in no output."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from tests.pipeline.kube.conftest import kubeconfig
from tests.podgpu.doctor.support import write

ROOT = Path(__file__).parents[3]
SECRET = "hunter2"  # noqa: S105 - of the tests
PODGPU = [sys.executable, "-m", "podgpu"]
BROKEN = f"{SECRET}\n{SECRET} \x1b[2J\n"
"""A file of two lines, each of which may be the secret."""


def with_plugin(folder: Path, script: str) -> Path:
    folder.mkdir()
    run = {"command": "sh", "args": ["-c", script, SECRET], "apiVersion": f"v1-{SECRET}"}
    return kubeconfig(folder / "config", "https://127.0.0.1:1", {"exec": run})


def configuration(folder: Path, port: int) -> dict[str, Any]:
    """Return a configuration with an unusable secret in each place where a secret may be."""
    broken = str(write(folder / "secret", BROKEN))
    alias = write(folder / "alias", f"users: [{{name: u, user: {{token: *{SECRET} }}}}]")
    key = kubeconfig(folder / "key", "https://127.0.0.1:1", {"client-key": SECRET * 40})
    printing = with_plugin(folder / "printing", f"printf '\\033[2J{SECRET}' >&2; exit 3")
    writing = with_plugin(folder / "writing", f'echo \'{{"token": "{SECRET}"}}\'')
    proxy = {"proxy-url": f"http://u:{SECRET}@127.0.0.1:1"}
    proxied = kubeconfig(folder / "proxied", "https://server.invalid", {"token": SECRET}, **proxy)
    address = f"http://127.0.0.1:{port}"
    return {
        "node": "gpu-1",
        "counters": {"configmap": "ns:list", "kubeconfig": str(proxied)},
        "sources": {
            "plugin": {"kind": "pods", "kubeconfig": str(printing)},
            "key": {"kind": "pods", "kubeconfig": str(key)},
            "proxy": {"kind": "pods", "kubeconfig": str(proxied)},
            "basic": {"kind": "dcgm", "url": address, "username": "u", "password_file": broken},
            "bearer": {"kind": "dcgm", "url": address, "bearer_token_file": broken},
            "query": {"kind": "dcgm", "url": f"http://127.0.0.1:1/metrics?token={SECRET}"},
        },
        "sinks": {
            "metrics": {"kind": "prometheus", "listen": f"127.0.0.1:{port}"},
            "node": {"kind": "node", "kubeconfig": str(writing)},
            "marks": {"kind": "pods", "kubeconfig": str(alias)},
            "push": {
                "kind": "otlp",
                "endpoint": "http://127.0.0.1:1",
                "headers": {"x-key": SECRET},
                "bearer_token_file": broken,
            },
        },
    }


def write_configuration(folder: Path) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return write(folder / "podgpu.yaml", yaml.safe_dump(configuration(folder, port)))


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--json",), ("--allow-configured-code",)])
def test_the_doctor_prints_no_secret(tmp_path: Path, more: tuple[str, ...]) -> None:
    words = ["doctor", "-c", str(write_configuration(tmp_path)), *more]
    done = subprocess.run(
        [*PODGPU, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (2, "")
    for component in (
        "plugin",
        "key",
        "proxy",
        "basic",
        "bearer",
        "query",
        "node",
        "marks",
        "push",
    ):
        assert re.search(rf"(source|sink) {component}\b", done.stdout), component
    assert SECRET not in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_passwords_and_keys_of_a_web_config_are_not_printed(tmp_path: Path) -> None:
    write(tmp_path / "key.pem", f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n")
    web = {
        "basic_auth_users": {"alice": SECRET},
        "tls_server_config": {"cert_file": "key.pem", "key_file": "key.pem"},
    }
    path = write(tmp_path / "web.yml", yaml.safe_dump(web))
    text = f"http: {{listen: ':1', web_config: {path}}}\nsources: {{r: {{kind: replay}}}}\n"
    words = ["doctor", "--json", "-c", str(write(tmp_path / "podgpu.yaml", text))]
    done = subprocess.run(
        [*PODGPU, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    found = json.loads(done.stdout)["findings"]
    findings = [each for each in found if each["check"] in {"http.web_config", "config"}]
    assert any(each["verdict"] == "failure" for each in findings)
    assert SECRET not in done.stdout + done.stderr


@contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PODGPU, "run", "--allow-configured-code", "-c", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()


def read(address: str) -> str:
    with suppress(OSError), urlopen(address, timeout=10) as response:  # noqa: S310 - of the test
        return str(response.read().decode())
    return ""


def troubled(status: str) -> set[str]:
    """Return the components for which /status reports an error."""
    found = json.loads(status) if status else {"sources": [], "sinks": []}
    return {each["name"] for each in found["sources"] + found["sinks"] if each["error"]}


@pytest.mark.slow
def test_the_daemon_shows_no_secret_in_its_log_and_pages(tmp_path: Path) -> None:
    path = write_configuration(tmp_path)
    address = "http://" + yaml.safe_load(path.read_text())["sinks"]["metrics"]["listen"]
    expected, deadline = (
        {"plugin", "key", "proxy", "basic", "bearer", "query", "push"},
        time.monotonic() + 60,
    )
    with running(path) as process:
        while not expected <= (found := troubled(read(f"{address}/status"))):
            assert time.monotonic() < deadline, expected - found
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        pages = [read(f"{address}/{page}") for page in ("", "status", "metrics")]
        process.terminate()
        log, _ = process.communicate(timeout=30)
    assert all(pages)
    assert "the credential plugin sh ended with status 3" in log
    assert SECRET not in "".join([log, *pages])
    assert "\x1b" not in "".join([log, *pages])
