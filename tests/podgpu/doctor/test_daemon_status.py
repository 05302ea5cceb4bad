"""`daemon.status`, by what a podgpu says of itself."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pipeline.base.telemetry import Telemetry
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.port_owner import PortOwner
from pipeline.exposition.own_metrics import tail
from pipeline.exposition.text_format import Format
from pipeline.runtime.config_reload import ReloadAttempts
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.problems import problems
from pipeline.status_page.status_document import StatusDocument
from podgpu.doctor import listen_ports
from podgpu.doctor.daemon_status import check_daemon
from tests.pipeline.status_page.scenes import no_driver, troubled, two_gpus
from tests.podgpu.doctor.support import context, is_bad, of, page, serving
from tests.podgpu.doctor.test_listen_ports import PODGPU_ANSWERS, on

WELL = status_of(two_gpus())
NOW = WELL.time.timestamp()


def reloads(*results: str) -> bytes:
    """The page of a podgpu whose changes ended so, one after the other."""
    telemetry = Telemetry()
    attempts = ReloadAttempts(telemetry)
    for result in results:
        attempts.count("configuration", result)
    return tail(Format.TEXT, telemetry.collect({}))


def looked(status: StatusDocument | bytes, metrics: bytes = b"", now_s: float = NOW) -> Finding:
    body = status if isinstance(status, bytes) else msgspec.json.encode(status)
    return check_daemon("a/status", PortOwner(True, "podgpu", status=body, metrics=metrics), now_s)


def test_a_podgpu_that_is_well_says_what_it_has() -> None:
    given_out = looked(WELL, reloads("refused", "failed", "done"))
    assert given_out.verdict is Verdict.OK, given_out
    assert given_out.check == "daemon.status"
    assert "2 GPUs" in given_out.observed


@pytest.mark.parametrize("scene", [troubled, no_driver])
def test_what_its_pages_name_as_a_problem_is_a_warning(scene: Callable[[], object]) -> None:
    status = status_of(scene())  # type: ignore[arg-type]
    given_out = looked(status)
    wrong = problems(status)
    assert given_out.check == "daemon.status"
    is_bad(given_out, "warning", wrong[0].partition(":")[0], "podgpu's log")
    if len(wrong) > 4:
        assert given_out.observed.endswith(f"; and {len(wrong) - 4} more")


def test_a_sink_that_is_stuck_is_named() -> None:
    (sink, *_) = WELL.sinks
    stuck = msgspec.structs.replace(sink, delivering=False)
    given_out = looked(msgspec.structs.replace(WELL, sinks=(stuck,)))
    is_bad(given_out, "warning", f"sink {sink.name}: nothing is delivered", "podgpu's log")


REFUSED = [["refused"], ["failed"], ["done", "done", "refused"], ["refused", "done", "failed"]]


@pytest.mark.parametrize("labels", [b"", b'{node="n"}'])
@pytest.mark.parametrize("results", REFUSED)
def test_a_change_that_was_not_taken_over_is_a_warning(results: list[str], labels: bytes) -> None:
    """However many were, before: what counts is the last."""
    page = reloads(*results).replace(b"_successful 0", b"_successful%b 0" % labels)
    given_out = looked(WELL, page)
    is_bad(given_out, "warning", "was not loaded", "podgpu check")


@pytest.mark.parametrize("results", [[], ["done"], ["done", "refused", "failed", "done"]])
def test_one_that_was_taken_over_since_is_none(results: list[str]) -> None:
    assert looked(WELL, reloads(*results)).verdict is Verdict.OK


def test_who_waits_for_long_is_named_and_who_has_just_begun_is_not() -> None:
    waits = msgspec.structs.replace(WELL, ready=False, waiting_for="source kubelet")
    assert waits.started is not None
    begun = waits.started.timestamp()
    assert looked(waits, now_s=begun + 60).verdict is Verdict.OK
    saw = "not ready 5 min after its start: waits for source kubelet"
    is_bad(looked(waits, now_s=begun + 300), "warning", saw, "podgpu's log")


@pytest.mark.parametrize("body", [b"", b"{}", b"nonsense", b"[" * 100_000, b'{"version": 99}'])
def test_what_cannot_be_read_is_not_judged(body: bytes) -> None:
    assert looked(body).verdict is Verdict.SKIPPED


async def test_it_is_asked_where_it_answers_and_once(tmp_path: Path) -> None:
    status = msgspec.json.encode(msgspec.structs.replace(WELL, node="gpu-1"))
    metrics = reloads("refused")

    def answer(path: str) -> bytes:
        return page({"/status": status, "/metrics": metrics}.get(path, b""), PODGPU_ANSWERS)

    async with serving(answer) as port, serving(answer) as other:
        text = f'{on(port)}http: {{listen: "127.0.0.1:{other}"}}\n'
        found = await listen_ports.examine(context(tmp_path / "a", f"node: gpu-1\n{text}"))
        others = await listen_ports.examine(context(tmp_path / "b", f"node: gpu-2\n{text}"))
    given_out = of(found, "daemon.status")
    is_bad(given_out, "warning", "was not loaded", "podgpu check")
    assert given_out.subject == f"127.0.0.1:{port}/status"
    assert [each.check for each in others] == ["http.port"] * 2, "another node's is not ours"


async def test_behind_a_password_it_is_skipped(tmp_path: Path) -> None:
    refuses = page(b"{}", PODGPU_ANSWERS, status="401 Unauthorized")
    async with serving(lambda _: refuses) as port:
        found = await listen_ports.examine(context(tmp_path, on(port)))
    assert replace(of(found, "daemon.status"), subject="").observed == (
        "not available, for example because a password is required"
    )
    assert of(found, "daemon.status").verdict is Verdict.SKIPPED
