"""The doctor's check `events.rbac`, with each permission missing in turn."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sinks.events.doctor import examine
from sinks.events.options import Options
from tests.podgpu.doctor.support import context, free_port, is_bad, of
from tests.support.kube import ApiServer


async def findings(folder: Path, server: ApiServer, *namespaces: str) -> list[Finding]:
    options = Options(
        kubeconfig=server.kubeconfig(folder / "kubeconfig"), namespaces=namespaces or ("*",)
    )
    return await examine(options, context(folder / "ctx"))


async def test_complete_permissions_are_ok_and_no_event_is_created(tmp_path: Path) -> None:
    server = ApiServer({})
    async with server.serving():
        finding = of(await findings(tmp_path, server), "events.rbac")
    assert finding.verdict is Verdict.OK
    assert finding.observed == "create events, patch events"
    assert server.requests == []


async def test_permissions_are_checked_in_the_configured_namespaces_only(tmp_path: Path) -> None:
    server = ApiServer({})
    async with server.serving():
        finding = of(await findings(tmp_path, server, "ml", "team-a"), "events.rbac")
        again = tmp_path / "again"
        again.mkdir()
        all_namespaces = of(await findings(again, server, "ml", "team-*"), "events.rbac")
    assert finding.observed == (
        "create events in ml, patch events in ml, create events in team-a, patch events in team-a"
    )
    assert all_namespaces.observed == "create events, patch events"


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_missing_verb_is_named_in_the_finding(tmp_path: Path, verb: str) -> None:
    server = ApiServer({})
    server.unallowed = {(verb, "events")}
    async with server.serving():
        finding = of(await findings(tmp_path, server), "events.rbac")
    rule = f'resources ["events"], verbs [{verb}]'
    is_bad(finding, "failure", f"may not {verb} events", rule)


async def test_an_unreachable_server_is_a_failure(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = free_port()
    finding = of(await findings(tmp_path, server), "events.rbac")
    is_bad(finding, "failure", "Connect call failed", "the address is correct")
