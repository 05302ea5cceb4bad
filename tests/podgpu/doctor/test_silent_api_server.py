"""Each check that needs an API server reports one that accepts connections and never responds."""

import asyncio
from pathlib import Path

import pytest

from pipeline.base.errors import ApiError
from pipeline.component.kind import Kind
from pipeline.component.registry import KINDS
from pipeline.diagnostics.api_permissions import try_watch
from pipeline.diagnostics.check_runner import Examination, of_components, run
from pipeline.diagnostics.context import REQUEST_TIMEOUT, DoctorContext
from pipeline.kube.sessions import Sessions
from podgpu.doctor.node_checks import diagnose
from tests.podgpu.doctor.silent_server import silent_server
from tests.podgpu.doctor.support import config, context, is_bad
from tests.podgpu.doctor.test_clock_check import pods_at

SERVERS = {
    "pods.server": "sources: {{s: {{kind: pods, kubeconfig: {path}}}}}\n",
    "node.rbac": "sinks: {{s: {{kind: node, kubeconfig: {path}}}}}\n",
    "pods.patch": "sinks: {{s: {{kind: pods, kubeconfig: {path}}}}}\n",
    "events.rbac": "sinks: {{s: {{kind: events, kubeconfig: {path}}}}}\n",
    "counters": "counters: {{configmap: 'ns:list', kubeconfig: {path}}}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("check", SERVERS)
async def test_a_silent_api_server_is_reported_by_the_check_that_needs_it(
    tmp_path: Path, check: str
) -> None:
    with silent_server() as port:
        pods_at(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        text = SERVERS[check].format(path=tmp_path / "kubeconfig")
        ctx = context(tmp_path, text, kube=Sessions(request_timeout=0.3).session, deadline=20.0)
        found = await diagnose(ctx)
    (finding,) = [each for each in found if each.check == check]
    assert finding.fix
    assert "no response within 0.3 s" in finding.observed
    if check != "counters":
        is_bad(finding, "failure", "no response", "check that the address is correct")
    deadlines = [each for each in found if each.check == "check.deadline"]
    assert [each for each in deadlines if each.component == "source s"] == []


def test_the_request_timeout_is_shorter_than_the_deadline_of_a_component() -> None:
    assert DoctorContext(config("")).deadline > REQUEST_TIMEOUT * 2


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["get", "patch", "create"])
async def test_each_request_ends_after_the_timeout(tmp_path: Path, verb: str) -> None:
    with silent_server() as port:
        pods_at(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        async with Sessions(request_timeout=0.3).session(tmp_path / "kubeconfig") as api:
            with pytest.raises(ApiError, match=r"no response within 0\.3 s") as caught:
                await getattr(api, verb)("/x", {})
    assert caught.value.status == 0


@pytest.mark.slow
async def test_a_watch_ends_after_a_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.diagnostics.api_permissions._WATCH_TIMEOUT", 0.3)
    with silent_server() as port:
        pods_at(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        async with Sessions().session(tmp_path / "kubeconfig") as api:
            error = await try_watch(api, "/x", {})
    assert error is not None
    assert error.status == 0


def entries_with_checks() -> list[tuple[str, str]]:
    return [entry for entry, each in KINDS.items() if each.doctor]


@pytest.mark.parametrize("entry", entries_with_checks(), ids=":".join)
def test_each_component_kind_has_a_fix_for_a_timeout(entry: tuple[str, str]) -> None:
    assert KINDS[entry].timeout_fix  # type: ignore[index]


async def never(*_: object) -> list[object]:
    await asyncio.sleep(3600)
    return []


@pytest.mark.looptime
async def test_a_kind_without_its_own_fix_has_the_general_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.diagnostics.check_runner.load", lambda _: never)
    bare = Kind("", "sources.pods.options:Options", "", doctor="of.its:own")
    monkeypatch.setitem(KINDS, ("source", "novel"), bare)
    made = config("sources: {s: {kind: novel}}\n")
    (finding, *_) = await run(of_components(made, DoctorContext(made)), 30)
    is_bad(finding, "failure", "no result within 30 s", "see dmesg")


@pytest.mark.looptime
async def test_a_timeout_is_reported_with_the_fix_of_the_component_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.diagnostics.check_runner.load", lambda _: never)
    made = config("sources: {s: {kind: pods}}\n")
    (each, *_) = of_components(made, DoctorContext(made))
    assert isinstance(each, Examination)
    (finding, *_) = await run([each], 30)
    is_bad(finding, "failure", "no result within 30 s", "API server")
