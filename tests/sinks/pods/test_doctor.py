"""What the doctor says of the pods sink's rights, each one taken away."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sinks.pods.doctor import examine
from sinks.pods.options import Options
from tests.podgpu.doctor.support import context, free_port, is_bad, of
from tests.support.kube import ApiServer


async def looked(folder: Path, server: ApiServer) -> Finding:
    made = Options(kubeconfig=server.kubeconfig(folder / "kubeconfig"))
    return of(await examine(made, context(folder / "ctx")), "pods.patch")


async def test_rights_that_are_all_there_are_well_and_no_pod_is_asked_for(tmp_path: Path) -> None:
    server = ApiServer({})
    async with server.serving():
        given_out = await looked(tmp_path, server)
    assert given_out.verdict is Verdict.OK
    assert given_out.observed == "get pods, patch pods"
    assert server.requests == []


@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_each_verb_that_is_missing_is_named(tmp_path: Path, verb: str) -> None:
    server = ApiServer({})
    server.unallowed = {(verb, "pods")}
    async with server.serving():
        given_out = await looked(tmp_path, server)
    rule = f'resources ["pods"], verbs [{verb}]'
    is_bad(given_out, "failure", f"may not {verb} pods", rule)


async def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = await free_port()
    is_bad(
        await looked(tmp_path, server), "failure", "Connect call failed", "the address is correct"
    )
