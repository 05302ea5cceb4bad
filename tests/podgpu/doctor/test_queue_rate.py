"""The check `queue.rate`, which reads the rates that a running podgpu reports."""

from pathlib import Path

import pytest

from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.findings import Finding, Verdict
from pipeline.component.registry import OWN_FAMILIES
from pipeline.diagnostics.port_owner import PortOwner
from pipeline.exposition.text_format import Format, tail
from podgpu.doctor import listen_ports
from podgpu.doctor.delivery_queues import check_rates
from tests.podgpu.doctor.support import config, context, is_bad, of, page, serving
from tests.podgpu.doctor.test_listen_ports import PODGPU_HEADER, listening_on

MIB = 1 << 20


def metrics_page(**rates: float) -> bytes:
    """Return the metrics page of a podgpu whose sinks produce so many bytes per second."""
    telemetry = Telemetry(families=OWN_FAMILIES)
    for sink, rate in rates.items():
        Meter(telemetry, "sink", sink).set("podgpu_sink_produced_bytes_per_second", rate)
    return tail(Format.TEXT, telemetry.collect({}))


def checked(rate: float | None, max_rate: str = "4MiB") -> Finding:
    text = f"sinks: {{a: {{kind: otlp, queue: {{max_rate: {max_rate}}}}}, b: {{kind: jsonl}}}}\n"
    metrics = b"" if rate is None else metrics_page(other=9 * MIB, a=rate)
    (finding,) = check_rates("here", PortOwner(True, "podgpu", metrics=metrics), config(text))
    assert finding.subject == "here/metrics"
    return finding


@pytest.mark.parametrize(
    ("rate", "observed"),
    [
        (3 * MIB, "produces 3.0 MiB/s, and queue.max_rate is 4MiB/s: sending the queue"),
        (4 * MIB, "the queue never shrinks, and overflows"),
        (90 * MIB, "produces 90.0 MiB/s"),
    ],
)
def test_r8_a_rate_that_makes_a_backlog_permanent_is_a_warning(rate: float, observed: str) -> None:
    is_bad(checked(rate), "warning", observed, "raise queue.max_rate")


def test_a_lower_rate_is_ok_and_without_a_report_the_check_is_skipped() -> None:
    assert checked(2 * MIB).verdict is Verdict.OK
    assert checked(90 * MIB, "0B").verdict is Verdict.OK, "no limit"
    assert checked(None).verdict is Verdict.SKIPPED


async def test_the_rate_is_read_from_the_podgpu_that_responds(tmp_path: Path) -> None:
    def respond(path: str) -> bytes:
        pages = {"/status": b'{"node": "gpu-1"}', "/metrics": metrics_page(a=9 * MIB)}
        return page(pages.get(path, b""), PODGPU_HEADER)

    async with serving(respond) as port:
        text = listening_on(port).replace("sinks: {", "sinks: {a: {kind: otlp}, ")
        assert "kind: otlp" in text
        found = await listen_ports.examine(context(tmp_path, f"node: gpu-1\n{text}"))
    is_bad(of(found, "queue.rate"), "warning", "never shrinks", "raise queue.max_rate")
