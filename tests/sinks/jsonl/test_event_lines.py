"""Lines of events: ended holdings and XID errors."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from config.value_types import Duration
from pipeline.changes.descriptions import error_id
from pipeline.changes.unreported_changes import XidChange
from pipeline.delivery.options import QueueOptions
from pipeline.model import NS, Holding, PodInfo, Snapshot, XidError
from sinks.jsonl import event_lines
from sinks.jsonl.line_encoder import SnapshotEncoder
from sinks.jsonl.options import Line, Options
from tests.sinks.jsonl.support import Bench, documented_lines, options, parsed, shape
from tests.support.nodes import Node, at, every_field, gpu, mig
from tests.support.sinks import FakeSinkContext
from tests.support.usage import holding, holdings, usage, victim, xid_error

NEVER = Duration(0)
NODE = Node()
NODE.has(gpu(0), mig(gpu(0), 7))
PLAIN = NODE.snapshot()
ONE = holding("a", gpu(0), start=at(1), end=at(61))


def line(encoded: bytes) -> dict[str, Any]:
    [found] = parsed(encoded)
    return found


def line_of(one: Holding) -> dict[str, Any]:
    return line(event_lines.holding_line("node-1", one, PLAIN))


def error_line(error: XidError, *, again: bool = False) -> dict[str, Any]:
    return line(event_lines.error_line("node-1", XidChange(error, again, error_id(error)), PLAIN))


def snapshot_with(
    holdings: Iterable[Holding] = (), errors: Iterable[XidError] = (), base: Snapshot = PLAIN
) -> Snapshot:
    return replace(base, usage=usage(ended=holdings), xids=tuple(errors))


def test_the_line_of_an_ended_holding() -> None:
    info = PodInfo(
        "u-a", "ml", "a", "Succeeded", "Job", "fit", qos="Guaranteed", labels=(("team", "x"),)
    )
    encoded = line_of(
        holding(
            "a",
            gpu(0),
            info=info,
            start=at(1.5),
            end=at(3601.5),
            gap=5 * NS,
            held=1_797_500_000_001,
            busy=900_000_000_003,
            energy=123_456_789_012,
            peak=8 << 30,
            mean=3 << 30,
            busy_peak=999_999,
            contested=180_000_000_000,
            switching=1,
            xids=((13, 1), (31, 7)),
            own_id="run-7",
        )
    )
    assert encoded == {
        "record": "holding",
        "time": "2027-01-15T09:00:01.500000Z",
        "node": "node-1",
        "id": f"{gpu(0).uuid}/u-a/main/run-7",
        "device": {
            "uuid": gpu(0).uuid,
            "index": 0,
            "minor": 0,
            "pci_bus_id": "00000000:01:00.0",
            "model": "NVIDIA H100 80GB HBM3",
            "driver": "580.159.04",
        },
        "namespace": "ml",
        "pod": "a",
        "container": "main",
        "pod_uid": "u-a",
        "phase": "Succeeded",
        "owner": {"kind": "Job", "name": "fit"},
        "qos_class": "Guaranteed",
        "labels": {"team": "x"},
        "source": "runtime",
        "evidence": "runtime_cdi",
        "start": "2027-01-15T08:00:01.500000Z",
        "end": "2027-01-15T09:00:01.500000Z",
        "counted_nanoseconds": 3_595 * NS,
        "gap_nanoseconds": 5 * NS,
        "held_nanoseconds": 1_797_500_000_001,
        "busy_nanoseconds": 900_000_000_003,
        "busy_error_nanoseconds": 12_000_000_001,
        "contested_busy_nanoseconds": 180_000_000_000,
        "switching_nanoseconds": 1,
        "busy_mean_ppm": 250_347,
        "busy_peak_ppm": 999_999,
        "energy_millijoules": 123_456_789_012,
        "memory_mean_bytes": 3 << 30,
        "memory_peak_bytes": 8 << 30,
        "xids": [{"xid": 13, "count": 1}, {"xid": 31, "count": 7}],
    }


def test_unknown_values_of_a_holding_are_left_out() -> None:
    encoded = line_of(
        holding("", "GPU-gone", namespace="", container="", uid="u", source="", end=at(1))
    )
    assert encoded["device"] == {"uuid": "GPU-gone"}
    assert encoded.keys() == {
        *("record", "time", "node", "id", "device", "pod_uid", "start", "end"),
        *("counted_nanoseconds", "gap_nanoseconds", "held_nanoseconds"),
    }


@given(holdings(gpu(0)))
def test_values_of_a_holding_have_all_their_digits(one: Holding) -> None:
    encoded = line_of(one)
    assert (
        encoded["counted_nanoseconds"] + encoded["gap_nanoseconds"] == one.counted_ns + one.gap_ns
    )
    assert encoded["held_nanoseconds"] == one.held_ns
    assert encoded.get("busy_nanoseconds") == one.busy_ns
    assert encoded.get("contested_busy_nanoseconds") == one.contested_ns
    assert encoded.get("switching_nanoseconds") == one.switching_ns
    assert encoded.get("energy_millijoules") == one.energy_mj
    assert encoded.get("memory_peak_bytes") == one.memory_peak_bytes
    assert encoded.get("memory_mean_bytes") == one.memory_mean_bytes
    assert {each["xid"]: each["count"] for each in encoded.get("xids", [])} == dict(one.xids)


def test_the_line_of_an_xid_error_lists_the_affected_containers() -> None:
    instance = mig(gpu(0), 7)
    error = xid_error(
        gpu(0),
        79,
        victim("a", gpu(0), caused=True),
        victim("b", instance, uses=False, info=PodInfo("u-b", "ml", "b", owner_kind="Job")),
        when=at(2),
        pid=4711,
        process="python3",
    )
    encoded = error_line(error)
    assert encoded.pop("device")["uuid"] == gpu(0).uuid
    common = {"namespace": "ml", "container": "main"}
    assert encoded == {
        "record": "xid_error",
        "time": "2027-01-15T08:00:02.000000Z",
        "node": "node-1",
        "id": f"{gpu(0).uuid}/79/{at(2).wall_ns}",
        "xid": 79,
        "meaning": "GPU has fallen off the bus",
        "action": "reboot_node",
        "pid": 4711,
        "process": "python3",
        "victims": [
            {**common, "pod": "a", "pod_uid": "u-a", "device": gpu(0).uuid, "holds": True,
             "uses": True, "caused": True},
            {**common, "pod": "b", "pod_uid": "u-b", "owner": {"kind": "Job", "name": ""},
             "device": instance.uuid, "holds": True, "uses": False, "caused": False},
        ],
    }  # fmt: skip


def test_unknown_values_of_an_error_are_left_out() -> None:
    encoded = error_line(xid_error("GPU-gone", 9999))
    assert encoded.keys() == {"record", "time", "node", "id", "device", "xid", "victims"}
    assert encoded["victims"] == []


def test_an_update_line_has_the_id_of_the_first_line() -> None:
    first, second = xid_error(gpu(0), 79), xid_error(gpu(0), 79, pid=7, revision=1)
    ctx = FakeSinkContext()
    encoder = SnapshotEncoder(Options(telemetry_interval=NEVER), ctx)
    sent = [
        line(encoded)
        for error in (first, first, second)
        for encoded in encoder.encode(snapshot_with(errors=[error])).lines
    ]
    assert [each.get("update") for each in sent] == [None, True]
    assert sent[0]["id"] == sent[1]["id"]
    assert sent[1]["pid"] == 7


def test_example_lines_in_the_docs_have_the_real_structure() -> None:
    examples, info = (
        documented_lines(),
        PodInfo("u-a", "ml", "a", owner_kind="Job", owner_name="fit"),
    )
    full = holding(
        "a",
        gpu(0),
        info=info,
        end=at(9),
        busy=1,
        busy_peak=1,
        energy=1,
        mean=1,
        xids=((31, 1),),
        contested=1,
        switching=1,
    )
    error = xid_error(gpu(0), 31, victim("a", gpu(0), caused=True), pid=1, process="p")
    for shown, encoded in (
        (examples["holding"], line_of(full)),
        (examples["xid_error"], error_line(error)),
    ):
        assert shown.pop("device").keys() <= encoded.pop("device").keys()
        assert shape(shown) == shape(encoded)
        assert list(shown) == list(encoded), "in the same order"


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (("readings", "holdings", "xids"), ["device", "holding", "xid_error"]),
        (("readings",), ["device"]),
        (("holdings",), ["holding"]),
        (("xids",), ["xid_error"]),
        (("xids", "holdings"), ["holding", "xid_error"]),
    ],
)
def test_the_option_lines_selects_the_kinds_of_lines(
    lines: tuple[Line, ...], kinds: list[str]
) -> None:
    node = Node()
    node.has(gpu(0))
    node.reads(*every_field([gpu(0)], at(0)))
    options = Options(telemetry_interval=NEVER, lines=lines)
    encoder = SnapshotEncoder(options, FakeSinkContext())
    batch = encoder.encode(snapshot_with([ONE], [xid_error(gpu(0), 79)], node.snapshot()))
    assert [line(each)["record"] for each in batch.lines] == kinds
    counted = dict(zip(kinds, batch.readings, strict=True))
    assert counted.pop("device", 2) > 1
    assert set(counted.values()) <= {1}


def test_options_that_write_nothing_are_rejected() -> None:
    options = Options(telemetry_interval=NEVER, lines=())
    assert [place for place, _ in options.problems()] == ["lines"]
    assert list(Options(lines=()).problems()) == [], "podgpu's own metrics are still written"


def test_events_that_were_missed_are_counted() -> None:
    ctx = FakeSinkContext()
    encoder = SnapshotEncoder(Options(telemetry_interval=NEVER), ctx)
    late = replace(ONE, serial=4)
    encoder.encode(snapshot_with([late], [xid_error(gpu(0), 79, serial=3)]))
    assert ctx.counted("podgpu_sink_dropped_total") == {"missed": 5}
    without = FakeSinkContext()
    encoder = SnapshotEncoder(Options(telemetry_interval=NEVER, lines=("readings",)), without)
    encoder.encode(snapshot_with([late]))
    assert without.counted("podgpu_sink_dropped_total") == {}


@pytest.mark.parametrize("queue", [None, QueueOptions()], ids=["directly", "by a queue"])
async def test_each_event_is_written_once_across_reloads_and_counted(
    tmp_path: Path, queue: QueueOptions | None
) -> None:
    path = tmp_path / "gpu.jsonl"
    kept: dict[str, object] = {}
    ended: list[Holding] = []
    counted = 0.0
    for number in range(3):
        # The snapshot before the sink was made again.
        latest = snapshot_with(ended) if number else None
        bench = Bench(options(path, queue=queue), kept=kept, latest=latest)
        async with bench.writing():
            ended.append(replace(ONE, serial=number + 1, start=at(number), id=f"run-{number}"))
            bench.inbox.offer(snapshot_with(ended))
            bench.inbox.offer(snapshot_with(ended, [xid_error(gpu(0), 79)]))
            await bench.wait_for("emitted_total", 1 + (number == 0))
            counted += bench.emitted
            if queue is not None:
                assert bench.imbalance == 0
        kept = dict(bench.ctx.restart_state)
    found = [json.loads(each) for each in path.read_text().splitlines()]
    assert [each["record"] for each in found] == ["holding", "xid_error", "holding", "holding"]
    assert len({each["id"] for each in found}) == len(found) == counted
