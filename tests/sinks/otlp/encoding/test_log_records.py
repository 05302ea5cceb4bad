"""Log records of ended holdings and XID errors: content and resource."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from pipeline.changes.descriptions import error_id, figures
from pipeline.changes.unreported_changes import UnreportedChanges, XidChange
from pipeline.model import NS, Holding, PodInfo, Snapshot, XidError
from sinks.otlp.options import Names
from tests.sinks.otlp.encoding.accounts import Scene, container_points
from tests.sinks.otlp.encoding.logs import Log, logs
from tests.sinks.otlp.encoding.support import held, pods, points
from tests.support.examples import examples
from tests.support.nodes import at, claim, gpu, mig
from tests.support.usage import account, holding, holdings, usage, used, victim, xid_error

FOLDER = Path(__file__).parents[3] / "golden" / "otlp"
INSTANCE = mig(gpu(1), 7)
ONE = holding(
    "a",
    gpu(0),
    start=at(1),
    end=at(61),
    busy=15 * NS,
    xids=((13, 1), (79, 2)),
    contested=5 * NS,
    switching=7,
)


def encode_events(
    scene: Scene,
    holdings: Iterable[Holding] = (),
    errors: Iterable[XidError] = (),
    *,
    again: bool = False,
    snapshot: Snapshot | None = None,
) -> list[Log]:
    snapshot = snapshot or scene.snapshot()
    scene.encoder.encode(snapshot)
    changes = UnreportedChanges(
        tuple(holdings), tuple(XidChange(error, again, error_id(error)) for error in errors)
    )
    return logs(scene.encoder.events.records(snapshot, changes))


def test_the_record_of_an_ended_holding() -> None:
    scene = Scene()
    scene.node.seconds = 65
    [log] = encode_events(scene, [ONE])
    assert (log.event, log.severity) == ("podgpu.holding.ended", (9, "INFO"))
    assert (log.time, log.observed) == (at(61).wall_ns, at(65).wall_ns)
    assert log.body == f"ml/a/main held {gpu(0).uuid} for 60.000 s"
    assert log.attributes["event.name"] == log.event
    assert log.attributes["hw.id"] == gpu(0).uuid
    assert log.attributes["podgpu.holding.start_unix_nanoseconds"] == at(1).wall_ns
    assert log.attributes["podgpu.holding.xids"] == {"13": 1, "79": 2}
    assert log.attributes["podgpu.holding.busy_nanoseconds"] == 15 * NS
    assert log.schemas == (log.schemas[0], log.schemas[0])
    assert log.schemas[0].startswith("https://opentelemetry.io/schemas/")


@given(holdings(gpu(0)))
@settings(max_examples=examples(40))
def test_every_amount_is_an_integer_with_all_its_digits(one: Holding) -> None:
    [log] = encode_events(Scene(started=False), [one])
    prefix = "podgpu.holding."
    found = {name: log.attributes.get(prefix + name) for name, _ in figures(one)}
    assert {name: int(value or 0) for name, value in found.items()} == dict(figures(one))
    unknown = {"busy_nanoseconds", "energy_millijoules", "memory_peak_bytes"} - found.keys()
    assert not {prefix + name for name in unknown} & log.attributes.keys()


@pytest.mark.parametrize("containers", [True, False])
def test_the_record_has_the_resource_of_the_container_metrics(containers: bool) -> None:
    scene = Scene(containers=containers)
    info = PodInfo("u-a", "ml", "a", owner_kind="Job", owner_name="fit", labels=(("v", "1"),))
    pods(scene.node, info)
    held_claim = claim("a", gpu(0).uuid)
    held(
        scene.node, replace(held_claim, subject=replace(held_claim.subject, container_id="c0ffee"))
    )
    scene.usage = usage(account(gpu(0), used("a", busy=NS, info=info)))
    scene.encode()
    held(scene.node)
    scene.usage = usage(account(gpu(0), used("a", busy=2 * NS, ended=at(3), info=info)))
    snapshot = scene.snapshot()
    metrics = container_points(points(scene.encoder.encode(snapshot)))
    [log] = logs(scene.encoder.events.records(snapshot, UnreportedChanges((ONE,))))
    assert {tuple(sorted(log.resource.items()))} == {point.resource for point in metrics}
    assert log.resource["container.id"] == "c0ffee"
    assert log.resource["k8s.job.name"] == "fit"


def test_without_an_account_the_resource_is_that_of_a_holder() -> None:
    scene = Scene()
    held_claim = claim("a", gpu(0).uuid)
    held(
        scene.node,
        replace(held_claim, subject=replace(held_claim.subject, container_id="c0ffee", uid="u-a")),
    )
    [held_now] = encode_events(scene, errors=[xid_error(gpu(0), 79, victim("a", gpu(0)))])
    assert held_now.resource["container.id"] == "c0ffee"
    [other] = encode_events(scene, errors=[xid_error(gpu(0), 79, victim("b", gpu(0)))])
    assert other.resource["k8s.pod.uid"] == "u-b"
    assert "container.id" not in other.resource


@pytest.mark.parametrize(("code", "severity"), [(79, (17, "ERROR")), (31, (13, "WARN"))])
def test_an_xid_error_has_a_record_for_each_affected_container(
    code: int, severity: tuple[int, str]
) -> None:
    scene = Scene(gpu(0), gpu(1), INSTANCE)
    error = xid_error(
        gpu(1),
        code,
        victim("a", INSTANCE, caused=True),
        victim("b", gpu(1), holds=False),
        when=at(2),
        pid=4711,
        process="python3",
    )
    found = encode_events(scene, errors=[error])
    assert [log.resource["k8s.pod.name"] for log in found] == ["a", "b"]
    assert [log.attributes["hw.id"] for log in found] == [INSTANCE.uuid, gpu(1).uuid]
    for log in found:
        assert (log.event, log.severity, log.time) == ("podgpu.xid_error", severity, at(2).wall_ns)
        assert log.attributes["error.type"] == f"xid_{code}"
        assert log.attributes["podgpu.xid.code"] == code
        assert log.attributes["podgpu.xid.victims"] == 2
        assert log.attributes["podgpu.xid.pid"] == 4711
        assert log.attributes["podgpu.xid.process"] == "python3"
    first, second = (log.attributes for log in found)
    assert first["podgpu.xid.id"] == second["podgpu.xid.id"]
    assert first["podgpu.xid.caused"] is True
    assert second["podgpu.xid.caused"] is second["podgpu.xid.holds"] is False


def test_an_xid_error_without_victims_has_the_resource_of_the_node() -> None:
    [log] = encode_events(Scene(), errors=[xid_error("GPU-gone", 9999)])
    assert log.resource["service.name"] == "podgpu"
    assert log.attributes["hw.id"] == "GPU-gone"
    assert "podgpu.xid.holds" not in log.attributes
    assert "podgpu.xid.meaning" not in log.attributes


def test_an_update_of_an_error_is_marked_and_has_the_same_id() -> None:
    found = [
        log.attributes
        for again in (False, True)
        for log in encode_events(Scene(), errors=[xid_error(gpu(0), 79)], again=again)
    ]
    assert [each.get("podgpu.xid.update") for each in found] == [None, True]
    assert found[0]["podgpu.xid.id"] == found[1]["podgpu.xid.id"]


@pytest.mark.parametrize("names", ["semconv", "dcgm"])
def test_records_equal_their_golden_file(names: Names) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the files again; read the difference before you commit it."""
    scene = Scene(gpu(0), gpu(1), INSTANCE, names=names, resource={"k8s.cluster.name": "lab"})
    pods(scene.node, PodInfo("u-a", "ml", "a", "Succeeded", "Job", "fit"))
    full = replace(
        ONE,
        gap_ns=NS,
        energy_mj=90_000,
        memory_byte_ns=60 * NS,
        memory_ns=6 * NS,
        memory_peak_bytes=99,
    )
    sparse = holding("b\ud800", INSTANCE, uid="", source="", start=at(2), end=at(2.0003))
    error = xid_error(
        gpu(1), 94, victim("a", INSTANCE, caused=True), when=at(3), pid=7, process="python3"
    )
    found = encode_events(scene, [full, sparse], [error, xid_error(gpu(0), 31, serial=2)])
    text = json.dumps([_as_text(log) for log in found], indent=1, ensure_ascii=False) + "\n"
    path = FOLDER / f"events-{names}.json"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def _as_text(log: Log) -> dict[str, object]:
    resource = {k: v for k, v in log.resource.items() if k != "service.version"}
    return {
        "resource": ", ".join(f"{name}={value}" for name, value in resource.items()),
        "event": log.event,
        "time": f"{log.time - at(0).wall_ns}, observed {log.observed - at(0).wall_ns}",
        "severity": f"{log.severity[0]} {log.severity[1]}",
        "body": log.body,
        "attributes": log.attributes,
    }
