"""`queue.rate`, by what a podgpu says it makes."""

from pathlib import Path

import pytest

from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.port_owner import PortOwner
from pipeline.exposition.own_metrics import tail
from pipeline.exposition.text_format import Format
from podgpu.doctor import listen_ports
from podgpu.doctor.queue_rate import check_rates
from tests.podgpu.doctor.support import config, context, is_bad, of, page, serving
from tests.podgpu.doctor.test_listen_ports import PODGPU_ANSWERS, on

MIB = 1 << 20


def makes(**rates: float) -> bytes:
    """The page of a podgpu whose sinks make so many bytes a second."""
    telemetry = Telemetry()
    for sink, rate in rates.items():
        Meter(telemetry, "sink", sink).set("podgpu_sink_produced_bytes_per_second", rate)
    return tail(Format.TEXT, telemetry.collect({}))


def looked(rate: float | None, max_rate: str = "4MiB") -> Finding:
    text = f"sinks: {{a: {{kind: otlp, queue: {{max_rate: {max_rate}}}}}, b: {{kind: jsonl}}}}\n"
    metrics = b"" if rate is None else makes(other=9 * MIB, a=rate)
    (given_out,) = check_rates("here", PortOwner(True, "podgpu", metrics=metrics), config(text))
    assert given_out.subject == "here/metrics"
    return given_out


@pytest.mark.parametrize(
    ("rate", "saw"),
    [
        (3 * MIB, "produces 3.0 MiB/s, and queue.max_rate is 4MiB/s: sending the queue"),
        (4 * MIB, "the queue never shrinks, and overflows"),
        (90 * MIB, "produces 90.0 MiB/s"),
    ],
)
def test_r8_the_doctor_foresees_a_backlog_that_never_ends(rate: float, saw: str) -> None:
    is_bad(looked(rate), "warning", saw, "raise queue.max_rate")


def test_what_leaves_room_is_well_and_what_is_not_reported_is_not_judged() -> None:
    assert looked(2 * MIB).verdict is Verdict.OK
    assert looked(90 * MIB, "0B").verdict is Verdict.OK, "no limit"
    assert looked(None).verdict is Verdict.SKIPPED


async def test_it_is_asked_of_the_podgpu_that_answers(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        pages = {"/status": b'{"node": "gpu-1"}', "/metrics": makes(a=9 * MIB)}
        return page(pages.get(path, b""), PODGPU_ANSWERS)

    async with serving(answer) as port:
        text = on(port).replace("sinks: {", "sinks: {a: {kind: otlp}, ")
        assert "kind: otlp" in text
        found = await listen_ports.examine(context(tmp_path, f"node: gpu-1\n{text}"))
    is_bad(of(found, "queue.rate"), "warning", "never shrinks", "raise queue.max_rate")
