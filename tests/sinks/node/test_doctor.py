"""What the doctor says of the node sink's Node and rights, each one taken away."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sinks.node.doctor import examine
from sinks.node.options import Options
from tests.podgpu.doctor.support import context, free_port, is_bad, of, verdicts
from tests.support.kube import ApiServer, Collection

NODE = "/api/v1/nodes/node-1"


async def looked(folder: Path, server: ApiServer, node: str = "node-1") -> list[Finding]:
    made = Options(kubeconfig=server.kubeconfig(folder / "kubeconfig"), node=node)
    return await examine(made, context(folder / "ctx"))


async def test_a_node_that_may_be_read_and_changed_is_well(tmp_path: Path) -> None:
    server = ApiServer({NODE: Collection()})
    async with server.serving():
        found = await looked(tmp_path, server)
    assert verdicts(found) == {"node.name": "ok", "node.rbac": "ok"}
    assert of(found, "node.rbac").observed == "get nodes node-1, patch nodes node-1"


@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_each_verb_that_is_missing_is_named(tmp_path: Path, verb: str) -> None:
    server = ApiServer({NODE: Collection()})
    server.unallowed = {(verb, "nodes")}
    if verb == "get":
        server.forbidden = {("list", NODE)}
    async with server.serving():
        found = await looked(tmp_path, server)
    given_out = of(found, "node.rbac")
    is_bad(given_out, "failure", f"may not {verb} nodes node-1", f"verbs [{verb}]")
    assert [each.check for each in found if each.fix] == ["node.rbac"]


async def test_a_name_that_no_node_has(tmp_path: Path) -> None:
    server = ApiServer({NODE: Collection()})
    async with server.serving():
        found = await looked(tmp_path, server, "podgpu-x7k2")
    is_bad(of(found, "node.name"), "failure", "no Node named podgpu-x7k2", "spec.nodeName")
    assert of(found, "node.rbac").verdict is Verdict.OK


async def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = await free_port()
    found = await looked(tmp_path, server)
    is_bad(of(found, "node.rbac"), "failure", "Connect call failed", "the address is correct")


async def test_a_token_that_has_expired_is_to_be_renewed(tmp_path: Path) -> None:
    server = ApiServer({NODE: Collection()})
    server.tokens = {"another"}
    async with server.serving():
        (found,) = await looked(tmp_path, server)
    is_bad(found, "failure", "credentials rejected (401", "renew the token")
