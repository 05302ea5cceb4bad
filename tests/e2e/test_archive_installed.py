"""The archive, installed by the chart on a real cluster: regular writes, the last write of a pod,
and compaction.

The S3 server listens on the node's address, which pods reach.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from pipeline.ledger.schema import HOUR_NS
from podgpu.cli.commands import run_command
from tests.e2e.charts import Values
from tests.e2e.helm import NAMESPACE, Helm
from tests.e2e.image import Image
from tests.e2e.installation import Installation, installed, prepared_site, values
from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.service import NODE_ADDRESS, with_address
from tests.e2e.processes import wait_until
from tests.e2e.s3_server import BUCKET, S3Server, serving
from tests.e2e.scenes import distinct
from tests.fakes.nvml import FakeNvml
from tests.pipeline.ledger.archive_world import World

LOCATION = f"s3://{BUCKET}/podgpu"
GRACE = 20
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
START_NS = (time.time_ns() // HOUR_NS // 24 * 24 - 3 * 24 + 12) * HOUR_NS
"""Noon, three days ago."""
DAY = f"{datetime.fromtimestamp(START_NS / 1e9, UTC):%Y-%m-%d}"


@pytest.fixture(scope="module")
def site(loaded: Image, cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with controllers and a GPU label on its node, without podgpu."""
    with prepared_site(cluster):
        yield cluster


@pytest.fixture
def s3_server(site: Cluster, tmp_path: Path) -> Iterator[S3Server]:
    (folder := tmp_path / "s3").mkdir()
    with with_address(NODE_ADDRESS), serving(folder, NODE_ADDRESS) as one:
        yield one


@contextmanager
def world_of(ledger: Path) -> Iterator[World]:
    """Open the ledger of the past, also while podgpu writes it."""
    world = World(ledger, now_ns=START_NS, latest_ns=START_NS)
    try:
        yield world
    finally:
        world.close()


def chart_values(server: S3Server, ledger: Path) -> Values:
    secret = [{"secretRef": {"name": server.bucket.name}}]
    return {
        "usage": {"enabled": True, "path": str(ledger)},
        "archive": {
            "enabled": True,
            "to": LOCATION,
            "cluster": "east",
            "grace": f"{GRACE}s",
            "envFrom": secret,
            "compaction": {"enabled": True, "envFrom": secret},
        },
    }


def compact(release: Installation) -> str:
    """Run the CronJob's job once, as `kubectl create job --from` does; return the log."""
    api, name = release.kube.api, "compact-now"
    spec = release.made.one("CronJob")["spec"]["jobTemplate"]["spec"]
    meta = {"name": name, "namespace": NAMESPACE}
    api.request(
        "POST", JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    )

    def ended() -> str:
        status: dict[str, Any] = api.request("GET", f"{JOBS}/{name}")["status"]
        return "succeeded" if status.get("succeeded") else "failed" * bool(status.get("failed"))

    result = wait_until(ended, "the end of the job", seconds=60, every=0.2)
    (pod,) = api.list("Pod", NAMESPACE, labelSelector=f"job-name={name}")
    log = release.kube.pod_log(pod["metadata"]["name"], "compact", NAMESPACE)
    api.request("DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Background"})
    assert result == "succeeded", log
    return log


def report(*source: str) -> dict[str, Any]:
    """Return the report of the day, without the names of clusters and nodes."""
    with redirect_stdout(StringIO()) as output:
        words = ["--day", DAY, "--by", "pod", "--format", "json"]
        assert run_command(["usage", *source, *words]) == 0
    found = json.loads(output.getvalue())
    for device in found["devices"]:
        # The ledger has the present index, and this GPU of the past is not in the node any more.
        del device["gpu_index"]
    for row in [*found["rows"], *found["devices"]]:
        assert (row.pop("cluster", "east"), row.pop("node", Cluster.node)) == ("east", Cluster.node)
    parts = ("rows", "free", "unknown", "unattributed", "total", "devices", "gap_counts")
    return {part: found[part] for part in parts}


@contextmanager
def writing(site: Cluster, helm: Helm, server: S3Server, folder: Path) -> Iterator[Installation]:
    """Install podgpu with an archive on the server, and its credentials in a Secret."""
    access.add_namespace(site.api, NAMESPACE)
    meta = {"name": server.bucket.name, "namespace": NAMESPACE}
    site.api.create({"kind": "Secret", "metadata": meta, "stringData": server.environment()})
    how = values(FakeNvml(distinct(), folder), chart_values(server, ledger_in(folder)))
    with installed(site, helm, how) as release:
        yield release


def ledger_in(folder: Path) -> Path:
    return folder / "ledger" / "usage.db"


def test_pods_write_the_archive_and_a_job_compacts_it(
    site: Cluster, helm: Helm, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ledger := ledger_in(tmp_path)).parent.mkdir()
    with world_of(ledger) as world:
        world.connection.execute("INSERT INTO meta VALUES ('node', ?)", (site.node,))
        world.usage(0, "train-0", (HOUR_NS // 2, HOUR_NS // 4, 100))
        world.usage(1, "", (HOUR_NS // 3, None, 50))
    with writing(site, helm, s3_server, tmp_path) as release:
        (pod,) = release.pods()
        name = pod["metadata"]["name"]
        # The first write is within a minute, and the next one an hour later.
        own = f"podgpu/v1/nodes/east/{site.node}/{DAY}"
        wait_until(lambda: s3_server.keys(own), "the first write", seconds=75, every=0.2)
        wait_until(lambda: "podgpu: wrote " in site.pod_log(name, "archive", NAMESPACE), "its end")
        first = s3_server.keys(own)
        with world_of(ledger) as world:
            world.usage(0, "train-0", (HOUR_NS // 4, HOUR_NS // 8, 10))
        assert s3_server.keys(own) == first
        began = time.monotonic()
        site.remove(name, NAMESPACE)
        assert time.monotonic() - began < GRACE
        assert set(s3_server.keys(own)) > set(first), "a pod that ends writes once more"

        release.wait()
        assert f"east {DAY}: merged 2 objects, deleted 2; " in compact(release)
        assert s3_server.keys(own) == []
        assert len(s3_server.keys(f"podgpu/v1/clusters/east/{DAY}")) == 1

    for variable, value in s3_server.environment().items():
        monkeypatch.setenv(variable, value)
    archived = report("--from", LOCATION)
    assert archived["total"]["held_seconds"] == 3600 * 0.75
    assert archived == report("--ledger", str(ledger))
