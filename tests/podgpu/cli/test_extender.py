"""`podgpu extender`, run as a user does."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.topology.node_annotation import KEY
from podgpu.cli import main
from podgpu.extender.server import RESOURCE
from tests.pipeline.topology.layouts import hgx
from tests.podgpu.extender.cluster import annotation_with, node, pod, question
from tests.support.kube import ApiServer, Collection, ThreadedApiServer

ROOT = Path(__file__).parents[3]


def cluster() -> ApiServer:
    nodes = Collection()
    nodes.put(node("full", annotation_with(hgx(), 0, at=time.time())))
    nodes.put(node("free", annotation_with(hgx(), 0xFF, at=time.time())))
    return ApiServer({"/api/v1/nodes": nodes})


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "podgpu", "extender", "--listen", "127.0.0.1:0", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        port = 0
        for line in process.stderr:
            if found := re.search(rb"serving http://127\.0\.0\.1:(\d+)/", line):
                port = int(found[1])
                break
        assert port
        yield process, port
    finally:
        process.kill()
        process.communicate()


def request(port: int, path: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=15) as response:
        return bytes(response.read())


def wait_ready(port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            request(port, "/readyz")
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_responds_until_a_signal_stops_it(tmp_path: Path, signum: int) -> None:
    api = ThreadedApiServer(cluster, lambda _: None).server
    kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
    with started("--kubeconfig", str(kubeconfig)) as (process, port):
        wait_ready(port)
        body = question(pod(gpus="8"), names=["full", "free"])
        filtered: Any = json.loads(request(port, "/filter", body))
        assert filtered["NodeNames"] == ["free"]
        scores: Any = json.loads(request(port, "/prioritize", body))
        assert {each["Host"]: each["Score"] for each in scores} == {"full": 0, "free": 10}
        process.send_signal(signum)
        _, errors = process.communicate(timeout=15)
        assert process.returncode == 0, errors
        assert b"stopping" in errors
        assert b"Traceback" not in errors


UNUSABLE = [
    (("--listen", "192.0.2.1:1"), "listen 192.0.2.1:1: this machine has no such address"),
    (("--kubeconfig", "/nope"), "--kubeconfig /nope: No such file or directory"),
    (("--kubeconfig", "/"), "--kubeconfig /: Is a directory"),
    (("--web-config", "/nope"), "--web-config: "),
]
EACH_IN_A_PROCESS = """
import json, os, sys
from podgpu.cli import main
import podgpu.cli.extender.command  # once for all processes

for words in json.loads(sys.argv[1]):
    print("case:", *words, file=sys.stderr, flush=True)
    if os.fork() == 0:
        os._exit(main(["extender", "--listen", "127.0.0.1:0", *words]))
    _, status = os.wait()
    print("status", os.waitstatus_to_exitcode(status), file=sys.stderr, flush=True)
"""


@pytest.mark.slow
def test_an_address_or_a_file_that_cannot_be_used_ends_with_status_2() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_PROCESS, json.dumps([words for words, _ in UNUSABLE])],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        timeout=28,
    )
    _, *outputs = done.stderr.split("case: ")
    for (words, why), output in zip(UNUSABLE, outputs, strict=True):
        assert output.startswith(" ".join(words) + "\n")
        assert output.endswith("\nstatus 2\n"), output
        assert why in output
        assert "Traceback" not in output
        assert "http.web_config" not in output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--listen", "9410"), "is only a port"),
        (("--timeout", "3"), "has no unit"),
        (("--timeout", "0s"), "0s is not between 10ms and 9s"),
        (("--timeout", "10s"), "10s is not between 10ms and 9s"),
        (("--resource", ""), "'' is not a resource name"),
        (("--resource", "a b"), "'a b' is not a resource name"),
        (("--annotation", "a\nb"), "the name must have 1 to 63 characters of"),
        (("--annotation", "kubernetes.io/x"), "keys of kubernetes.io are reserved"),
        (("--annotation", "gpu.k8s.io/x"), "keys of k8s.io are reserved"),
        (("--what",), "podgpu extender: error: there is no option --what"),
        (("--what",), "see podgpu extender --help"),
    ],
)
def test_invalid_options_end_with_status_2(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["extender", *words])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_the_help_shows_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["extender", "--help"])
    output = capsys.readouterr().out
    for expected in (KEY, RESOURCE, ":9410", "3s"):
        assert expected in output
