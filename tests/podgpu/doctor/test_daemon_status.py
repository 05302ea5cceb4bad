"""The check `daemon.status`, which reads the status that a running podgpu reports."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pipeline.base.telemetry import Telemetry
from pipeline.component.findings import Finding, Verdict
from pipeline.component.registry import OWN_FAMILIES
from pipeline.diagnostics.port_owner import PortOwner
from pipeline.exposition.text_format import Format, tail
from pipeline.runtime.config_reload import ReloadAttempts
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from podgpu.doctor import listen_ports
from podgpu.doctor.listen_ports import check_daemon
from tests.pipeline.status_page.scenes import no_driver, troubled, two_gpus
from tests.podgpu.doctor.support import context, is_bad, of, page, serving
from tests.podgpu.doctor.test_listen_ports import PODGPU_HEADER, listening_on

HEALTHY = status_of(two_gpus())
NOW = HEALTHY.time.timestamp()


def reloads(*results: str) -> bytes:
    """Return the metrics page of a podgpu whose reloads had these results, in this order."""
    telemetry = Telemetry(families=OWN_FAMILIES)
    attempts = ReloadAttempts(telemetry)
    for result in results:
        attempts.count("configuration", result)
    return tail(Format.TEXT, telemetry.collect({}))


def all_checked(
    status: StatusDocument | bytes, metrics: bytes = b"", now_s: float = NOW
) -> list[Finding]:
    body = status if isinstance(status, bytes) else msgspec.json.encode(status)
    return check_daemon("a/status", PortOwner(True, "podgpu", status=body, metrics=metrics), now_s)


def checked(status: StatusDocument | bytes, metrics: bytes = b"", now_s: float = NOW) -> Finding:
    """Return the only finding."""
    [finding] = all_checked(status, metrics, now_s)
    return finding


def test_a_healthy_podgpu_is_ok_and_its_gpus_are_counted() -> None:
    finding = checked(HEALTHY, reloads("refused", "failed", "done"))
    assert finding.verdict is Verdict.OK, finding
    assert finding.check == "daemon.status"
    assert "2 GPUs" in finding.observed


@pytest.mark.parametrize("scene", [troubled, no_driver])
def test_each_problem_on_the_status_page_is_a_warning(scene: Callable[[], object]) -> None:
    status = status_of(scene())  # type: ignore[arg-type]
    found, expected = all_checked(status), status.problems or ()
    assert len(expected) > 1
    for finding, problem in zip(found[:8], expected, strict=False):
        assert finding.check == "daemon.status"
        is_bad(finding, "warning", f"{problem.severity}: {problem.text}", problem.advice or "see ")
    if len(expected) > 8:
        is_bad(found[8], "warning", f"{len(expected) - 8} more problem", "podgpu top")
        assert len(found) == 9
    else:
        assert len(found) == len(expected)


@pytest.mark.parametrize("status", [HEALTHY, status_of(no_driver())])
def test_what_was_not_measured_is_said(status: StatusDocument) -> None:
    notes = ("This is a recording.", "Simulated: GPU 1.")
    [*_, finding] = all_checked(msgspec.structs.replace(status, notes=notes))
    assert finding.observed.endswith(". This is a recording. Simulated: GPU 1.")


def test_problems_that_the_document_does_not_have_are_counted() -> None:
    status = msgspec.structs.replace(status_of(no_driver()), problems_left_out=300)
    assert all_checked(status)[-1].observed == "300 more problems"


def test_a_sink_that_delivers_nothing_is_named() -> None:
    (sink, *_) = HEALTHY.sinks
    stuck = msgspec.structs.replace(sink, delivering=False)
    finding = checked(msgspec.structs.replace(HEALTHY, sinks=(stuck,), problems=None))
    is_bad(finding, "warning", f"sink {sink.name}: nothing is delivered", "podgpu's log")


NOT_LOADED = [["refused"], ["failed"], ["done", "done", "refused"], ["refused", "done", "failed"]]


@pytest.mark.parametrize("labels", [b"", b'{node="n"}'])
@pytest.mark.parametrize("results", NOT_LOADED)
def test_a_configuration_change_that_was_not_loaded_is_a_warning(
    results: list[str], labels: bytes
) -> None:
    """Only the last result counts."""
    page = reloads(*results).replace(b"_successful 0", b"_successful%b 0" % labels)
    finding = checked(HEALTHY, page)
    is_bad(finding, "warning", "was not loaded", "podgpu check")


@pytest.mark.parametrize("results", [[], ["done"], ["done", "refused", "failed", "done"]])
def test_a_later_successful_reload_is_ok(results: list[str]) -> None:
    assert checked(HEALTHY, reloads(*results)).verdict is Verdict.OK


def test_a_component_that_delays_readiness_is_named_after_some_minutes() -> None:
    waiting = msgspec.structs.replace(HEALTHY, ready=False, waiting_for="source kubelet")
    assert waiting.started is not None
    started = waiting.started.timestamp()
    assert checked(waiting, now_s=started + 60).verdict is Verdict.OK
    observed = "not ready 5 min after its start: waits for source kubelet"
    is_bad(checked(waiting, now_s=started + 300), "warning", observed, "podgpu's log")


@pytest.mark.parametrize("body", [b"", b"{}", b"nonsense", b"[" * 100_000, b'{"version": 99}'])
def test_an_unreadable_status_is_skipped(body: bytes) -> None:
    assert checked(body).verdict is Verdict.SKIPPED


async def test_the_status_is_requested_once_where_it_is_available(tmp_path: Path) -> None:
    status = msgspec.json.encode(msgspec.structs.replace(HEALTHY, node="gpu-1"))
    metrics = reloads("refused")

    def respond(path: str) -> bytes:
        return page({"/status": status, "/metrics": metrics}.get(path, b""), PODGPU_HEADER)

    async with serving(respond) as port, serving(respond) as other:
        text = f'{listening_on(port)}http: {{listen: "127.0.0.1:{other}"}}\n'
        found = await listen_ports.examine(context(tmp_path / "a", f"node: gpu-1\n{text}"))
        others = await listen_ports.examine(context(tmp_path / "b", f"node: gpu-2\n{text}"))
    finding = of(found, "daemon.status")
    is_bad(finding, "warning", "was not loaded", "podgpu check")
    assert finding.subject == f"127.0.0.1:{port}/status"
    assert [each.check for each in others] == ["http.port"] * 2, "another node's is not checked"


async def test_a_status_that_requires_a_password_is_skipped(tmp_path: Path) -> None:
    refuses = page(b"{}", PODGPU_HEADER, status="401 Unauthorized")
    async with serving(lambda _: refuses) as port:
        found = await listen_ports.examine(context(tmp_path, listening_on(port)))
    assert replace(of(found, "daemon.status"), subject="").observed == (
        "not available, for example because a password is required"
    )
    assert of(found, "daemon.status").verdict is Verdict.SKIPPED
