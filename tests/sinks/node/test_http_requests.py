"""HTTP requests of the sink, to a server on the loopback interface."""

import asyncio
import json
from pathlib import Path

import pytest

from pipeline.base.channels import Channel
from pipeline.kube.sessions import Sessions
from pipeline.model import Snapshot
from pipeline.topology.node_annotation import KEY, published
from tests.pipeline.kube.conftest import Server, kubeconfig, says
from tests.sinks.node.support import Bench


async def test_a_node_is_read_and_one_of_its_annotations_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = json.dumps({"kind": "Node", "metadata": {"name": "node-1", "resourceVersion": "7"}})
    async with Server(says(node)).serving() as server:
        address = f"http://127.0.0.1:{server.port}"
        path = kubeconfig(tmp_path / "kubeconfig", address, {"token": "sesame"})
        bench = Bench(kubeconfig=path)
        monkeypatch.setattr(bench.ctx, "kube", Sessions().session)
        bench.node.say(bench.kubelet_claims(0), "kubelet", "podresources")
        inbox: Channel[Snapshot] = Channel(1)
        inbox.offer(bench.node.snapshot())
        inbox.close()
        async with asyncio.timeout(10), bench.sink:
            await bench.sink.run(inbox)
        get, patch = server.heads
        assert get.startswith("GET /api/v1/nodes/node-1 HTTP/1.1\r\n")
        assert patch.startswith("PATCH /api/v1/nodes/node-1 HTTP/1.1\r\n")
        assert "Content-Type: application/merge-patch+json\r\n" in patch
        sent = json.loads(server.bodies[1])
        assert published(sent["metadata"]["annotations"].pop(KEY)).free == 0b1110
        assert sent == {"metadata": {"annotations": {}}}
