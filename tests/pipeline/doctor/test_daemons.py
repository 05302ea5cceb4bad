"""`daemon.status`, by what a podgpu says of itself."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pipeline.doctor import ports
from pipeline.doctor.daemons import look
from pipeline.doctor.findings import Finding, Verdict
from pipeline.doctor.neighbours import Neighbour
from pipeline.status_page.document import StatusDocument
from pipeline.status_page.making import status_of
from pipeline.status_page.problems import problems
from tests.pipeline.doctor.support import context, is_bad, of, page, serving
from tests.pipeline.doctor.test_ports import PODGPU_ANSWERS, on
from tests.pipeline.status_page.scenes import no_driver, troubled, two_gpus

WELL = status_of(two_gpus())
NOW = WELL.time.timestamp()
HEAD = b"# TYPE podgpu_config_reloads_total counter\n"


def reloads(**counts: int) -> bytes:
    rows = "".join(
        f'podgpu_config_reloads_total{{node="n",result="{name}"}} {count}\n'
        for name, count in counts.items()
    )
    return HEAD + rows.encode()


def looked(status: StatusDocument | bytes, metrics: bytes = b"", now_s: float = NOW) -> Finding:
    body = status if isinstance(status, bytes) else msgspec.json.encode(status)
    return look("a/status", Neighbour(True, "podgpu", status=body, metrics=metrics), now_s)


def test_a_podgpu_that_is_well_says_what_it_has() -> None:
    told = looked(WELL, reloads(refused=2, failed=1, done=1))
    assert told.verdict is Verdict.OK, told
    assert told.check == "daemon.status"
    assert "2 GPUs" in told.saw


@pytest.mark.parametrize("scene", [troubled, no_driver])
def test_what_its_pages_name_as_a_problem_is_a_warning(scene: Callable[[], object]) -> None:
    status = status_of(scene())  # type: ignore[arg-type]
    told = looked(status)
    wrong = problems(status)
    assert told.check == "daemon.status"
    is_bad(told, "warning", wrong[0].partition(":")[0], "podgpu's log")
    if len(wrong) > 4:
        assert told.saw.endswith(f"; and {len(wrong) - 4} more")


def test_a_sink_that_is_stuck_is_named() -> None:
    (sink, *_) = WELL.sinks
    stuck = msgspec.structs.replace(sink, delivering=False)
    told = looked(msgspec.structs.replace(WELL, sinks=(stuck,)))
    is_bad(told, "warning", f"sink {sink.name}: nothing is delivered", "podgpu's log")


REFUSED = [({"refused": 1}, 1), ({"failed": 2}, 2), ({"refused": 1, "failed": 2, "done": 0}, 3)]


@pytest.mark.parametrize(("counts", "attempts"), REFUSED)
def test_a_file_that_was_not_taken_over_is_a_warning(counts: dict[str, int], attempts: int) -> None:
    saw = f"not taken over ({attempts} attempts)"
    is_bad(looked(WELL, reloads(**counts)), "warning", saw, "podgpu check")


def test_who_waits_for_long_is_named_and_who_has_just_begun_is_not() -> None:
    waits = msgspec.structs.replace(WELL, ready=False, waiting_for="source kubelet")
    assert waits.started is not None
    begun = waits.started.timestamp()
    assert looked(waits, now_s=begun + 60).verdict is Verdict.OK
    saw = "not ready, 5 min after its start: waits for source kubelet"
    is_bad(looked(waits, now_s=begun + 300), "warning", saw, "podgpu's log")


@pytest.mark.parametrize("body", [b"", b"{}", b"nonsense", b"[" * 100_000, b'{"version": 99}'])
def test_what_cannot_be_read_is_not_judged(body: bytes) -> None:
    assert looked(body).verdict is Verdict.SKIPPED


async def test_it_is_asked_where_it_answers_and_once(tmp_path: Path) -> None:
    status = msgspec.json.encode(msgspec.structs.replace(WELL, node="gpu-1"))
    metrics = reloads(refused=1)

    def answer(path: str) -> bytes:
        return page({"/status": status, "/metrics": metrics}.get(path, b""), PODGPU_ANSWERS)

    async with serving(answer) as port, serving(answer) as other:
        text = f'{on(port)}http: {{listen: "127.0.0.1:{other}"}}\n'
        found = await ports.examine(context(tmp_path / "a", f"node: gpu-1\n{text}"))
        others = await ports.examine(context(tmp_path / "b", f"node: gpu-2\n{text}"))
    told = of(found, "daemon.status")
    is_bad(told, "warning", "not taken over (1 attempts)", "podgpu check")
    assert told.looked_at == f"127.0.0.1:{port}/status"
    assert [each.check for each in others] == ["http.port"] * 2, "another node's is not ours"


async def test_behind_a_password_it_is_skipped(tmp_path: Path) -> None:
    refuses = page(b"{}", PODGPU_ANSWERS, status="401 Unauthorized")
    async with serving(lambda _: refuses) as port:
        found = await ports.examine(context(tmp_path, on(port)))
    assert replace(of(found, "daemon.status"), looked_at="").saw == (
        "it isn't told, as behind a password"
    )
    assert of(found, "daemon.status").verdict is Verdict.SKIPPED
