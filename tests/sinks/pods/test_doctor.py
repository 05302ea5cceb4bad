"""Checks of the pods sink: podgpu may read and patch pods."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sinks.pods.doctor import examine
from sinks.pods.options import Options
from tests.podgpu.doctor.support import context, free_port, is_bad, of
from tests.support.kube import ApiServer


async def examine_rights(folder: Path, server: ApiServer) -> Finding:
    options = Options(kubeconfig=server.kubeconfig(folder / "kubeconfig"))
    return of(await examine(options, context(folder / "ctx")), "pods.patch")


async def test_complete_permissions_are_ok_and_no_pod_is_requested(tmp_path: Path) -> None:
    server = ApiServer({})
    async with server.serving():
        finding = await examine_rights(tmp_path, server)
    assert finding.verdict is Verdict.OK
    assert finding.observed == "get pods, patch pods"
    assert server.requests == []


@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_a_missing_permission_is_reported(tmp_path: Path, verb: str) -> None:
    server = ApiServer({})
    server.unallowed = {(verb, "pods")}
    async with server.serving():
        finding = await examine_rights(tmp_path, server)
    rule = f'resources ["pods"], verbs [{verb}]'
    is_bad(finding, "failure", f"may not {verb} pods", rule)


async def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = free_port()
    is_bad(
        await examine_rights(tmp_path, server),
        "failure",
        "Connect call failed",
        "the address is correct",
    )
