"""An API server that takes connections and says nothing: each check that asks it says so itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from pipeline.component.registry import ENTRIES, Entry
from pipeline.diagnostics.api_permissions import try_watch
from pipeline.diagnostics.api_timeout import REQUEST_TIMEOUT, TimeoutKubeApi, with_timeout
from pipeline.diagnostics.check_runner import Examination, of_components, run
from pipeline.diagnostics.context import DoctorContext
from pipeline.kube.sessions import Sessions
from podgpu.doctor.node_checks import diagnose
from tests.podgpu.doctor.silent import silent
from tests.podgpu.doctor.support import config, context, is_bad
from tests.podgpu.doctor.test_clock_check import pods_at
from tests.support.kube import Collection, FakeApi

SERVERS = {
    "pods.server": "sources: {{s: {{kind: pods, kubeconfig: {path}}}}}\n",
    "node.rbac": "sinks: {{s: {{kind: node, kubeconfig: {path}}}}}\n",
    "pods.patch": "sinks: {{s: {{kind: pods, kubeconfig: {path}}}}}\n",
    "events.rbac": "sinks: {{s: {{kind: events, kubeconfig: {path}}}}}\n",
    "counters": "counters: {{configmap: 'ns:list', kubeconfig: {path}}}\n",
}


@pytest.mark.parametrize("check", SERVERS)
async def test_a_server_that_says_nothing_is_reported_by_who_asks_it(
    tmp_path: Path, check: str
) -> None:
    with silent() as port:
        pods_at(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        text = SERVERS[check].format(path=tmp_path / "kubeconfig")
        ctx = context(tmp_path, text, kube=with_timeout(Sessions().session, 0.3), deadline=20.0)
        found = await diagnose(ctx)
    (given_out,) = [each for each in found if each.check == check]
    assert given_out.fix
    assert "no answer within 0.3 s" in given_out.observed
    if check != "counters":
        is_bad(given_out, "failure", "no answer", "check that the address is correct")
    concerned = [each for each in found if each.check == "check.deadline"]
    assert [each for each in concerned if each.component == "source s"] == []


def test_the_usual_session_is_a_patient_one_within_a_component_s_time() -> None:
    assert DoctorContext(config("")).deadline > REQUEST_TIMEOUT * 2


class Mute(FakeApi):
    """Answers nothing, for ever."""

    async def get(self, path: str, query: object) -> bytes:
        await asyncio.sleep(3600)
        raise AssertionError(path, query)

    patch = create = get  # type: ignore[assignment]

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncIterator[Any]:
        """A stream that doesn't begin."""
        await asyncio.sleep(3600)
        yield


@pytest.mark.looptime
@pytest.mark.parametrize("verb", ["get", "patch", "create", "watch"])
async def test_every_request_is_waited_for_so_long(verb: str) -> None:
    api, loop = TimeoutKubeApi(Mute(Collection()), REQUEST_TIMEOUT), asyncio.get_running_loop()
    begun = loop.time()
    asking = try_watch(api, "/x", {}) if verb == "watch" else getattr(api, verb)("/x", {})
    error = (await asyncio.gather(asking, return_exceptions=True))[0]
    assert isinstance(error, ApiError)
    assert "no answer within 10 s" in str(error)
    assert error.status == 0
    assert loop.time() - begun == pytest.approx(REQUEST_TIMEOUT)


def kinds() -> list[tuple[str, str]]:
    return [entry for entry, each in ENTRIES.items() if each.doctor]


@pytest.mark.parametrize("entry", kinds(), ids=":".join)
def test_what_comes_to_no_end_has_a_fix_of_its_kind(entry: tuple[str, str]) -> None:
    assert ENTRIES[entry].timeout_fix  # type: ignore[index]


async def never(*_: object) -> list[object]:
    await asyncio.sleep(3600)
    return []


@pytest.mark.looptime
async def test_a_kind_without_one_has_that_of_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.diagnostics.check_runner.load", lambda _: never)
    bare = Entry("", "sources.pods.options:Options", "", doctor="of.its:own")
    monkeypatch.setitem(ENTRIES, ("source", "novel"), bare)
    made = config("sources: {s: {kind: novel}}\n")
    (given_out, *_) = await run(of_components(made, DoctorContext(made)), 30)
    is_bad(given_out, "failure", "no answer within 30 s", "see dmesg")


@pytest.mark.looptime
async def test_it_is_reported_with_the_component(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.diagnostics.check_runner.load", lambda _: never)
    made = config("sources: {s: {kind: pods}}\n")
    (each, *_) = of_components(made, DoctorContext(made))
    assert isinstance(each, Examination)
    (given_out, *_) = await run([each], 30)
    is_bad(given_out, "failure", "no answer within 30 s", "API server")
