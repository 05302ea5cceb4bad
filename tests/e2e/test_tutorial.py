"""The commands of the tutorial on a cluster, as a new user types them."""

import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.e2e import peers
from tests.e2e.helm import Helm
from tests.e2e.image import Image
from tests.e2e.kube.cluster import Cluster
from tests.e2e.playground_setup import PODS, REPOSITORY, Playground, playing
from tests.e2e.processes import Process, free_ports

TUTORIAL = DOCS / "tutorials" / "cluster.md"
NEEDS_A_BUILDER = ("export REGISTRY=", "docker ")
"""The image is on the node already."""


def environment(site: Playground, kubectl: Path, helm: Path, home: Path) -> Mapping[str, str]:
    return {
        **os.environ,
        "HOME": str(home),
        "KUBECONFIG": str(site.kubeconfig),
        "PATH": f"{kubectl.parent}:{helm.parent}:{os.environ['PATH']}",
        "REGISTRY": REPOSITORY.rpartition("/")[0],
    }


def run(command: str, env: Mapping[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_a_new_user_follows_the_tutorial(
    kube: Cluster, image: Image, helm: Helm, kubectl: Path, tmp_path: Path
) -> None:
    commands = [
        line
        for block in blocks(TUTORIAL)[1:]
        for line in block.splitlines()
        if not line.startswith(NEEDS_A_BUILDER)
    ]
    ran = []
    with playing(kube, image) as site:
        began = time.monotonic()
        env = environment(site, kubectl, peers.helm(), tmp_path)
        (port,) = free_ports(1)
        forward: Process | None = None
        try:
            for command in commands:
                # This node has no driver of its own, and port 9400 may be in use here.
                text = command.replace(
                    "helm install podgpu deploy/chart",
                    f"helm install podgpu deploy/chart -f {site.values}",
                ).replace("localhost:9400", f"localhost:{port}")
                if "port-forward" in text:
                    words = shlex.split(text.replace(" 9400", f" {port}:9400"))
                    forward = Process(words, tmp_path / "forward.log", env)
                    forward.wait_for_answer(port, "/healthz")
                    continue
                status, output = run(text, env)
                # The doctor reports that the node itself has no driver.
                allowed = {0, 1, 2} if "doctor" in text else {0}
                assert status in allowed, f"{text}\n{output}"
                ran.append((text, output))
                print(f"{time.monotonic() - began:.0f} s: {text}\n{output}")
        finally:
            if forward is not None:
                forward.stop()
            status, output = run(
                "helm uninstall podgpu -n podgpu && kubectl delete namespace podgpu", env
            )
            assert status == 0, output
    (top,) = [output for text, output in ran if "podgpu top --once" in text]
    assert all(f"default/{name}" in top for name in PODS), top
    (metrics,) = [output for text, output in ran if text.startswith("curl")]
    assert metrics.count("podgpu_device_holder_info{") == sum(PODS.values())
