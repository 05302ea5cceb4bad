"""What the doctor says of the events sink's rights, each one taken away."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sinks.events.doctor import examine
from sinks.events.options import Options
from tests.podgpu.doctor.support import context, free_port, is_bad, of
from tests.support.kube import ApiServer


async def looked(folder: Path, server: ApiServer, *namespaces: str) -> list[Finding]:
    made = Options(
        kubeconfig=server.kubeconfig(folder / "kubeconfig"), namespaces=namespaces or ("*",)
    )
    return await examine(made, context(folder / "ctx"))


async def test_rights_that_are_all_there_are_well_and_no_event_is_made(tmp_path: Path) -> None:
    server = ApiServer({})
    async with server.serving():
        given_out = of(await looked(tmp_path, server), "events.rbac")
    assert given_out.verdict is Verdict.OK
    assert given_out.observed == "create events, patch events"
    assert server.requests == []


async def test_of_namespaces_that_are_named_those_alone_are_asked_for(tmp_path: Path) -> None:
    server = ApiServer({})
    async with server.serving():
        given_out = of(await looked(tmp_path, server, "ml", "team-a"), "events.rbac")
        again = tmp_path / "again"
        again.mkdir()
        whole = of(await looked(again, server, "ml", "team-*"), "events.rbac")
    assert given_out.observed == (
        "create events in ml, patch events in ml, create events in team-a, patch events in team-a"
    )
    assert whole.observed == "create events, patch events"


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_each_verb_that_is_missing_is_named(tmp_path: Path, verb: str) -> None:
    server = ApiServer({})
    server.unallowed = {(verb, "events")}
    async with server.serving():
        given_out = of(await looked(tmp_path, server), "events.rbac")
    rule = f'resources ["events"], verbs [{verb}]'
    is_bad(given_out, "failure", f"may not {verb} events", rule)


async def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = await free_port()
    given_out = of(await looked(tmp_path, server), "events.rbac")
    is_bad(given_out, "failure", "Connect call failed", "the address is correct")
