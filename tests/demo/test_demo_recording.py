"""What `podgpu demo` shows: each scene of the built-in recording, and when."""

import gzip
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from pipeline.model import (
    Attribution,
    ContainerUsage,
    Device,
    Envelope,
    Instant,
    Reading,
    SamplesTaken,
    Snapshot,
)
from pipeline.recording import RecordingReader
from sources.replay import source
from tests.demo.play import Moment, moments

DEMO: Final = Path(source.__file__).with_name("demo.podgpu.gz")
SOON: Final = 3.0
"""Within how many seconds the first view has everything."""
LENGTH: Final = 210.0
LARGEST: Final = 600_000

TRAINER, EVAL = "research/finetune-0/trainer", "research/eval-0/eval"
HOLDERS: Final = {
    (0, ""): ["research/llama-train-0/trainer"],
    (1, ""): ["research/llama-train-0/trainer"],
    (2, ""): [
        "chat/assistant-0/server",
        "notebooks/scratch-0/jupyter",
        "search/embeddings-0/encoder",
    ],
    (3, ""): ["vision/detector-0/detector", "vision/tracker-0/tracker"],
    (4, "3g.40gb"): ["notebooks/lab-0/jupyter"],
    (4, "2g.20gb"): ["serving/small-0/server"],
    (4, "1g.10gb"): [],
    (5, ""): [EVAL, TRAINER],
    (6, ""): ["batch/render-0/render"],
    (7, ""): [],
}
"""The holders by index of the GPU and MIG profile."""
WITHOUT_CLAIM: Final = {(3, ""): "ops/debug-shell/shell", (6, ""): "batch/encode-0/encode"}
"""Containers that use a GPU that others hold."""

pytestmark = pytest.mark.slow


@cache
def played() -> Sequence[Moment]:
    """Return the node at each half second of the first two minutes."""
    return tuple(moments(DEMO, 120))


@cache
def recorded() -> Sequence[Envelope]:
    with RecordingReader(DEMO) as reader:
        return tuple(reader)


def soon() -> Snapshot:
    return next(moment.snapshot for moment in played() if moment.second >= SOON)


def first(found: Callable[[Snapshot], object]) -> float:
    """Return the first second at which a condition is true."""
    return next(moment.second for moment in played() if found(moment.snapshot))


def key(device: Device) -> tuple[int | None, str]:
    return device.index, device.mig.profile if device.mig is not None else ""


def attribution(snapshot: Snapshot, index: int, profile: str = "") -> Attribution:
    known = {key(one.device): one for one in snapshot.layout.attributions.values()}
    return known[index, profile]


def holders(one: Attribution) -> list[str]:
    parts = [holder.subject for holder in one.holders]
    return [f"{part.namespace}/{part.pod}/{part.container}" for part in parts]


def readings(snapshot: Snapshot, field: str, index: int, profile: str = "") -> list[Reading]:
    uuid = attribution(snapshot, index, profile).device.uuid
    return [one for one in snapshot.readings if one.field == field and one.device == uuid]


def value(snapshot: Snapshot, field: str, index: int) -> float | None:
    found = readings(snapshot, field, index)
    return found[0].value if found else None


def users(snapshot: Snapshot, index: int, profile: str = "") -> dict[str, ContainerUsage]:
    assert snapshot.usage is not None
    account = snapshot.usage.devices[attribution(snapshot, index, profile).device.uuid]
    return {
        f"{one.subject.namespace}/{one.subject.pod}/{one.subject.container}": one
        for one in account.containers
    }


def test_the_recording_is_small_and_has_the_length_of_a_loop() -> None:
    assert DEMO.stat().st_size < LARGEST
    with RecordingReader(DEMO) as reader:
        *_, last = reader
        assert reader.header.node == "demo"
        seconds = reader.header.started.seconds_until(last.at)
    assert LENGTH - 5 < seconds <= LENGTH


def test_simulated_gpus_are_marked() -> None:
    for one in soon().layout.attributions.values():
        model = one.device.model
        assert "H100" not in model or model.endswith(" (simulated)"), model
        assert "H200" in model or one.device.index in (4, 5, 6, 7)


@pytest.mark.parametrize(("device", "expected"), HOLDERS.items())
def test_the_first_view_shows_the_holders(device: tuple[int, str], expected: Sequence[str]) -> None:
    for snapshot in (played()[1].snapshot, soon()):
        assert holders(attribution(snapshot, *device)) == expected


@pytest.mark.parametrize("index", range(8))
def test_the_first_view_has_readings_of_each_gpu(index: int) -> None:
    snapshot = soon()
    for field in ("power_watts", "gpu_temperature_celsius", "memory_used_bytes", "sm_clock_mhz"):
        assert readings(snapshot, field, index), field
    assert bool(readings(snapshot, "gpu_utilization_percent", index)) == (index != 4)
    assert readings(snapshot, "tensor_active_ratio", index)


@pytest.mark.parametrize("device", [device for device, names in HOLDERS.items() if names], ids=str)
def test_the_first_view_has_the_usage_of_each_holder(device: tuple[int, str]) -> None:
    found = users(soon(), *device)
    for name in HOLDERS[device]:
        assert found[name].memory_bytes, name
        assert found[name].busy_ns is not None, name
        assert found[name].energy_mj is not None, name


@pytest.mark.parametrize(("device", "name"), WITHOUT_CLAIM.items())
def test_a_pod_uses_a_gpu_that_others_hold(device: tuple[int, str], name: str) -> None:
    one = users(soon(), *device)[name]
    assert one.memory_bytes
    assert one.held_ns == 0
    assert name not in holders(attribution(soon(), *device))


def test_gpus_that_are_shared_are_split_by_use() -> None:
    for second in (60.0, 120.0):
        snapshot = next(one.snapshot for one in played() if one.second >= second)
        two = users(snapshot, 2)
        busy = [
            two[f"{name}"].busy_ns or 0
            for name in ("chat/assistant-0/server", "search/embeddings-0/encoder")
        ]
        assert busy[0] > 1.2 * busy[1] > 0
        assert two["notebooks/scratch-0/jupyter"].busy_ns == 0
        assert (two["notebooks/scratch-0/jupyter"].memory_bytes or 0) > 1 << 30
    three = users(played()[-1].snapshot, 3)
    assert all((three[name].busy_ns or 0) > 0 for name in HOLDERS[3, ""])


def test_the_kernel_log_names_the_process_of_the_first_xid_error() -> None:
    (error,) = (one for one in played()[60].snapshot.xids if one.code == 31)
    assert {victim.subject.pod: victim.caused for victim in error.victims} == {
        "finetune-0": True,
        "eval-0": False,
    }
    assert error.pid is not None


def test_the_shared_gpu_falls_off_the_bus_and_comes_back() -> None:
    fell = first(lambda snapshot: any(one.code == 79 for one in snapshot.xids))
    (error,) = (one for one in played()[-1].snapshot.xids if one.code == 79)
    assert {victim.subject.pod for victim in error.victims} == {"finetune-0", "eval-0"}
    assert error.device == attribution(soon(), 5).device.uuid
    lost = first(lambda snapshot: value(snapshot, "gpu_up", 5) == 0)
    assert 45 <= fell <= lost <= 56
    down = next(one.snapshot for one in played() if one.second >= lost + 5)
    assert not readings(down, "power_watts", 5)
    back = next(
        one.second
        for one in played()
        if one.second > lost and value(one.snapshot, "gpu_up", 5) == 1
    )
    assert 83 <= back <= 95
    after = played()[-1].snapshot
    assert readings(after, "power_watts", 5)
    assert holders(attribution(after, 5)) == HOLDERS[5, ""]


def test_two_sources_disagree_about_the_owner_of_a_gpu() -> None:
    assert attribution(soon(), 6).conflicting_pods == ("batch/encode-0",)


def test_a_gpu_is_throttled_for_a_while() -> None:
    def throttled(snapshot: Snapshot) -> bool:
        found = readings(snapshot, "clock_throttle_active", 6)
        return any(one.value == 1 and ("reason", "sw_thermal") in one.attrs for one in found)

    seconds = [moment.second for moment in played() if throttled(moment.snapshot)]
    assert 60 <= seconds[0] <= 70
    assert 110 <= seconds[-1] <= 118


def test_a_pod_of_300_ms_has_its_own_row() -> None:
    last = played()[-1].snapshot
    assert last.usage is not None
    (ended,) = (one for one in last.usage.ended if one.subject.pod == "short-0")
    assert ended.subject.container == "task"
    assert 0.2e9 < ended.held_ns < 0.6e9
    assert ended.end is not None
    assert holders(attribution(last, 7)) == []


def test_the_free_gpu_has_a_row_to_remap() -> None:
    snapshot = next(one.snapshot for one in played() if one.second >= 6)
    assert value(snapshot, "row_remap_pending", 7) == 1
    assert [value(snapshot, "row_remap_pending", index) for index in range(7)] == [0] * 7


def test_values_vary() -> None:
    for index in (0, 2, 3, 5, 6):
        powers = {value(one.snapshot, "power_watts", index) for one in played()[4:80]}
        assert len(powers) > 10, index


def test_energy_is_that_of_the_power() -> None:
    for index in (5, 6):
        counted = [
            (found[0].at.mono_ns, found[0].value)
            for one in played()[10:90]
            if (found := readings(one.snapshot, "energy_millijoules", index))
        ]
        seconds = (counted[-1][0] - counted[0][0]) / 1e9
        mean = (counted[-1][1] - counted[0][1]) / 1000 / seconds
        powers = [value(one.snapshot, "power_watts", index) or 0.0 for one in played()[10:90]]
        assert mean == pytest.approx(sum(powers) / len(powers), rel=0.1), index


def test_times_of_each_series_ascend_also_from_pass_to_pass() -> None:
    """In a loop, a reading from before the recording would be older than those before it.

    Receivers of points drop a point that is older than the last one of its series.
    """
    with RecordingReader(DEMO) as reader:
        begin = reader.header.started
    last: dict[tuple[object, ...], Instant] = {}
    for envelope in recorded():
        if isinstance(envelope.event, SamplesTaken):
            for one in envelope.event.readings:
                series = (one.device, one.field, one.attrs)
                assert last.get(series, begin) < one.at <= recorded()[-1].at, series
                last[series] = one.at


def test_nothing_identifies_a_machine() -> None:

    text = gzip.decompress(DEMO.read_bytes()).decode()
    for word in ("/tmp/", "/root", "/work", "registry", "localhost"):
        assert word not in text, word
