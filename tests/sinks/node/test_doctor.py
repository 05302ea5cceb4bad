"""Checks of the node sink: its Node exists, and podgpu may read and patch it."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sinks.node.doctor import examine
from sinks.node.options import Options
from tests.podgpu.doctor.support import context, free_port, is_bad, of, verdicts
from tests.support.kube import ApiServer, Collection

NODE = "/api/v1/nodes/node-1"


async def examine_node(folder: Path, server: ApiServer, node: str = "node-1") -> list[Finding]:
    options = Options(kubeconfig=server.kubeconfig(folder / "kubeconfig"), node=node)
    return await examine(options, context(folder / "ctx"))


async def test_a_node_that_may_be_read_and_patched_is_ok(tmp_path: Path) -> None:
    server = ApiServer({NODE: Collection()})
    async with server.serving():
        found = await examine_node(tmp_path, server)
    assert verdicts(found) == {"node.name": "ok", "node.rbac": "ok"}
    assert of(found, "node.rbac").observed == "get nodes node-1, patch nodes node-1"


@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_a_missing_permission_is_reported(tmp_path: Path, verb: str) -> None:
    server = ApiServer({NODE: Collection()})
    server.unallowed = {(verb, "nodes")}
    if verb == "get":
        server.forbidden = {("list", NODE)}
    async with server.serving():
        found = await examine_node(tmp_path, server)
    finding = of(found, "node.rbac")
    is_bad(finding, "failure", f"may not {verb} nodes node-1", f"verbs [{verb}]")
    assert [each.check for each in found if each.fix] == ["node.rbac"]


async def test_a_name_without_a_node_is_reported(tmp_path: Path) -> None:
    server = ApiServer({NODE: Collection()})
    async with server.serving():
        found = await examine_node(tmp_path, server, "podgpu-x7k2")
    is_bad(of(found, "node.name"), "failure", "no Node is named podgpu-x7k2", "spec.nodeName")
    assert of(found, "node.rbac").verdict is Verdict.OK


async def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = free_port()
    found = await examine_node(tmp_path, server)
    is_bad(of(found, "node.rbac"), "failure", "Connect call failed", "the address is correct")


async def test_an_expired_token_is_reported(tmp_path: Path) -> None:
    server = ApiServer({NODE: Collection()})
    server.tokens = {"another"}
    async with server.serving():
        (found,) = await examine_node(tmp_path, server)
    is_bad(found, "failure", "credentials rejected (401", "renew the token")
