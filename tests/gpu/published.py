"""Check the annotations that podgpu writes to the Node and to pods, with a machine's GPUs.

    python3 -m tests.gpu.published --out DIR

Starts a Kubernetes cluster (as root; see tests/e2e/kube) whose device plugin offers this machine's
GPUs, and a podgpu with the sinks `node` and `pods`; then runs `podgpu doctor` and `podgpu top`.
Prints a JSON report.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pipeline.allocations.own_annotations import MARK
from pipeline.topology.node_annotation import KEY, Published, published
from pipeline.topology.text_views import matrix
from tests.e2e.documented import rules
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import GPU, gpu_pod
from tests.e2e.node import PODGPU
from tests.e2e.processes import get, wait_until
from tests.e2e.watched_podgpu import RULES, WatchedPodgpu, watching
from tests.gpu.driver_state import gpus
from tests.gpu.topology import active_links, cells, output

SOON = 4.0
"""Maximum delay in seconds: source, settling time, minimum interval of patches, and reserve."""


class NodeAnnotation:
    """The annotation of the Node."""

    def __init__(self, kube: Cluster) -> None:
        self._kube = kube

    def text(self) -> str:
        metadata = self._kube.api.get("Node", self._kube.node)["metadata"]
        found: str = metadata.get("annotations", {}).get(KEY, "")
        return found

    def published(self) -> Published:
        return published(self.text())

    def free(self) -> list[str]:
        annotation = self.published()
        assert annotation.free is not None
        cards = enumerate(annotation.topology.cards)
        return sorted(card.uuid for bit, card in cards if annotation.free >> bit & 1)

    def wait_free(self, expected: Collection[str]) -> float:
        """Wait until exactly these GPUs are free according to the annotation; return the seconds
        waited."""
        began = time.monotonic()
        wait_until(lambda: bool(self.text()), "the annotation", 30)
        wait_until(lambda: self.free() == sorted(expected), f"{expected} are free", 30)
        return round(time.monotonic() - began, 2)


def like_nvidia_smi(annotation: Published) -> dict[str, Any]:
    """Assert that the annotation has the same connections and NVLinks as nvidia-smi."""
    theirs, ours = cells(output("nvidia-smi", "topo", "-m")), cells(matrix(annotation.topology))
    assert theirs == ours, (theirs, ours)
    links = [card.links for card in annotation.topology.cards]
    assert links == list(active_links().values()), links
    return {"pairs": {f"{a}-{b}": cell for (a, b), cell in ours.items() if a < b}, "links": links}


def pods_follow(
    kube: Cluster, annotation_of_node: NodeAnnotation, minors: Collection[str]
) -> dict[str, Any]:
    """Start and delete pods; assert that both annotations follow."""
    seconds: dict[str, float] = {}
    for count in range(1, len(minors) + 1):
        name = f"train-{count}"
        kube.run(gpu_pod(name, count))

        def wrote(name: str = name) -> str:
            found = kube.api.pod(name)["metadata"].get("annotations", {})
            assert (GPU in found) == (MARK in found)
            written: str = found.get(GPU, "")
            return written

        began = time.monotonic()
        held = wait_until(wrote, f"{name} has its annotation", 30).split(",")
        seconds[f"{name} is written"] = round(time.monotonic() - began, 2)
        assert len(held) == count
        assert set(held) <= set(minors)
        seconds[f"{name} holds {count}"] = annotation_of_node.wait_free(set(minors) - set(held))
        kube.remove(name)
        seconds[f"{name} is gone"] = annotation_of_node.wait_free(minors)
    assert max(seconds.values()) < SOON, seconds
    return seconds


def deleted(kube: Cluster, annotation_of_node: NodeAnnotation) -> float:
    """Delete the annotation; it has to be written again at the next refresh."""
    kube.api.patch("Node", kube.node, {"metadata": {"annotations": {KEY: None}}})
    began = time.monotonic()
    wait_until(lambda: bool(annotation_of_node.text()), "it is written again", 30)
    return round(time.monotonic() - began, 1)


def doctor(podgpu: WatchedPodgpu) -> dict[str, Any]:
    """Return warnings and failures of the doctor on a healthy node, and its duration."""
    began = time.monotonic()
    done = subprocess.run(
        [PODGPU, "doctor", "-c", podgpu.config, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    against = [one for one in found["findings"] if one["verdict"] in {"warning", "failure"}]
    return {
        "status": done.returncode,
        "looked": len(found["findings"]),
        "against": against,
        "seconds": round(time.monotonic() - began, 1),
    }


def shown(podgpu: WatchedPodgpu) -> list[str]:
    """Return the output of `podgpu top`, and assert that the status page is served."""
    assert b"<table" in get(podgpu.port, "/").body
    assert json.loads(get(podgpu.port, "/status").body)["version"] == 1
    return output(
        str(PODGPU), "top", "--once", "--url", f"http://127.0.0.1:{podgpu.port}"
    ).splitlines()


def steps(kube: Cluster, podgpu: WatchedPodgpu, minors: Collection[str]) -> dict[str, Any]:
    annotation_of_node = NodeAnnotation(kube)
    report: dict[str, Any] = {"gpus": len(minors), "first": annotation_of_node.wait_free(minors)}
    report["topology"] = like_nvidia_smi(annotation_of_node.published())
    report["bytes"] = len(annotation_of_node.text())
    report["memory"] = [gpu.get("memory") for gpu in json.loads(annotation_of_node.text())["gpus"]]
    report["seconds"] = pods_follow(kube, annotation_of_node, minors)
    report["written again"] = deleted(kube, annotation_of_node)
    report["doctor"] = doctor(podgpu)
    report["top"] = shown(podgpu)
    report["requests"] = {
        " ".join(labels[key] for key in ("sink", "method", "result")): value
        for labels, value in podgpu.of("podgpu_sink_requests_total")
    }
    return report


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    minors = gpus()
    kubeconfig = str(out / "podgpu" / "kubeconfig")
    often = {"min_interval": "1s", "refresh": "10s"}
    sinks = {
        "topology": {"kind": "node", "kubeconfig": kubeconfig, **often},
        "pods": {"kind": "pods", "kubeconfig": kubeconfig},
    }
    allowed = (*RULES, *rules("sinks/node.md"), *rules("sinks/pods.md"))
    with Cluster() as kube:
        kube.plugin(minors)
        with watching(kube, out / "podgpu", None, rules=allowed, sinks=sinks) as podgpu:
            report = steps(kube, podgpu, minors)
    report["nvidia-smi"] = subprocess.run(
        ["nvidia-smi", "-L"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    (out / "published.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
