"""What is sealed for the archive is exactly what the ledger has, whenever a process is killed."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ledger.outbox import MAX_OBJECT_ROWS, first_object
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.usage_delta import Amounts
from pipeline.ledger.write_batch import Batch
from tests.pipeline.ledger.archive_world import (
    DEVICES,
    NOON,
    Known,
    Row,
    TextKey,
    World,
    amounts_of,
    device_sums,
    key_of,
    subject_of,
    valid_facts,
    valid_items,
)
from tests.pipeline.ledger.open_ledger import folder_in_memory
from tests.support.examples import examples

UUID = DEVICES[0].uuid


@pytest.fixture
def world() -> Iterator[World]:
    with folder_in_memory() as folder:
        made = World(folder / "usage.db")
        yield made
        made.close()


def text_of(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H:00:00Z}"


def kinds(rows: list[Row]) -> list[str]:
    return [row["row"] for row in rows]


AMOUNT = st.none() | st.integers(0, 3)
GAIN = st.tuples(st.integers(0, 3), AMOUNT, AMOUNT)
NAME = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("usage"), st.integers(0, 30), st.just("") | NAME, GAIN),
        st.tuples(st.just("usage"), st.integers(0, 2), NAME, GAIN, st.integers(0, 1), st.just(5)),
        st.tuples(st.just("hold"), NAME, st.none() | st.integers(0, 2000), st.integers(0, 9)),
        st.tuples(st.just("drop"), NAME),
        st.tuples(st.just("lose"), NAME),
        st.tuples(st.just("gap"), NAME, st.integers(0, 2000)),
        st.tuples(st.just("describe"), NAME, st.sampled_from(["train", "serve"])),
        st.tuples(st.just("wait"), st.sampled_from([1, 20, 60, 600, 1500])),
        st.tuples(st.just("wait"), st.sampled_from([-20, -90, -1500])),
        st.tuples(st.just("write")),
        st.tuples(st.just("write"), st.integers(1, 90)),
        st.tuples(st.just("retain"), st.sampled_from([1, 3])),
        st.tuples(st.just("restart")),
    ),
    min_size=8,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(STEPS)
def test_each_amount_is_in_the_archive_exactly_once(steps: list[tuple[object, ...]]) -> None:
    """For any sequence of changes, clocks, kills between any two statements, and retention."""
    with folder_in_memory() as folder:
        world = World(folder / "usage.db")
        for name, *arguments in steps:
            getattr(world, str(name))(*arguments)
        sealed = world.connection.execute("SELECT sealed_before FROM archive").fetchone()
        before = sealed[0] if sealed else 0
        rows = world.rows()
        # What is sealed and what is not, together, is what was reported.
        late = ledger_amounts(world, "late_hours") if sealed else {}
        kept = ledger_amounts(world, "hours")
        issued = amounts_of(rows)
        for (hour, uuid, who), amounts in world.hours.items():
            key = text_of(hour), uuid, who
            parts = [each[key] for each in (issued, late) if key in each]
            if hour >= before:
                parts.append(kept[key])
            assert summed(parts) == amounts
        # After the last write, everything is in the archive.
        world.now_ns = world.latest_ns + 48 * HOUR_NS
        world.archive = {row["serial"]: (row,) for row in rows}
        assert world.write()
        check_archive(world)
        world.close()


def ledger_amounts(world: World, table: str) -> dict[TextKey, Known]:
    found = world.connection.execute(
        "SELECT hour, d.uuid, c.pod, held_ns, busy_ns, energy_mj "  # noqa: S608
        f"FROM {table} AS h JOIN devices AS d ON d.id = h.device "
        "LEFT JOIN containers AS c ON c.id = h.container"
    )
    return {
        (text_of(hour), uuid, subject_of(pod) if pod else None): (held, busy, energy)
        for hour, uuid, pod, held, busy, energy in found
    }


def summed(parts: list[Known]) -> Known | None:
    rows = [
        {"row": "usage", "hour": "", "device": "", "held_ns": held}
        | ({} if busy is None else {"busy_ns": busy})
        | ({} if energy is None else {"energy_mj": energy})
        for held, busy, energy in parts
    ]
    return amounts_of(rows).get(("", "", None))


def check_archive(world: World) -> None:
    rows = world.rows()
    expected = {(text_of(hour), uuid, who): x for (hour, uuid, who), x in world.hours.items()}
    assert amounts_of(rows) == expected
    contests = {(text_of(hour), *rest): value for (hour, *rest), value in world.contests.items()}
    for factor, name in ((1, "contested_ns"), (2, "switching_ns")):
        found: Counter[TextKey] = Counter()
        for row in rows:
            if row["row"] == "usage":
                found[key_of(row)] += factor * row.get(name, 0)
        assert found == {key: contests[key] for key in expected}
    for (hour, uuid), sums in device_sums(rows).items():
        parts = [value for key, value in expected.items() if key[:2] == (hour, uuid)]
        assert sums["accounted_ns"] == sum(part[0] for part in parts)
        assert sums.get("busy_ns", 0) == sum(part[1] or 0 for part in parts)
        assert sums.get("energy_mj", 0) == sum(part[2] or 0 for part in parts)
    gaps = {(hour, uuid): sums["gap_ns"] for (hour, uuid), sums in device_sums(rows).items()}
    assert gaps == {(text_of(hour), uuid): length for (hour, uuid), length in world.gaps.items()}
    holdings = valid_items(rows, "holding")
    lasting = {key: one for key, one in world.ended.items() if key[8:] not in world.gone}
    assert {
        own_id: (row["end_ns"], row["held_ns"])
        for own_id, row in holdings.items()
        if own_id[8:] not in world.gone
    } == lasting
    # A reader of one day alone finds exactly the holdings and gaps that end on this day.
    for item in ("holding", "gap"):
        valid = valid_items(rows, item)
        for day in {row["day"] for row in rows}:
            of_day = valid_items([row for row in rows if row["day"] == day], item)
            assert of_day == {own_id: row for own_id, row in valid.items() if row["day"] == day}
    facts = valid_facts(rows)
    for row in rows:
        if row["row"] == "usage" and "pod" in row:
            assert (row["day"], subject_of(row["pod"])) in facts


def test_a_closed_hour_has_rows_of_usage_devices_and_containers(world: World) -> None:
    world.describe("a", "train")
    world.usage(0, "a", (5, 4, None))
    world.usage(0, "", (2, None, None))
    world.hold("a", 0, 5)
    world.wait(60 + 14)
    assert world.write()
    assert world.rows() == [], "the hour ended 14 minutes ago"
    world.wait(1)
    assert world.backlog() == 3
    assert world.write()
    assert world.backlog() == 0
    (day,) = world.archive.values()
    assert day == tuple(world.rows())
    ledger = day[0]["ledger"]
    assert len(ledger) == 16
    origin = {"cluster": "east", "node": "node-1", "ledger": ledger, "day": "2027-01-15"}
    device = {"device": UUID, "gpu": UUID, "gpu_index": 0, "model": DEVICES[0].model, "profile": ""}
    names = {"namespace": "ml", "pod": "a", "container": "main", "pod_uid": "u-a"}
    hour = {"hour": "2027-01-15T12:00:00Z"}
    end = NOON * HOUR_NS
    assert sorted(day, key=lambda row: row["serial"]) == [
        origin | device | hour | {"serial": 1, "row": "usage", "held_ns": 2},
        origin
        | device
        | hour
        | names
        | {"serial": 2, "row": "usage", "held_ns": 5, "busy_ns": 4}
        | {"contested_ns": 8, "switching_ns": 4},
        origin
        | device
        | hour
        | {"serial": 3, "row": "device", "accounted_ns": 7, "gap_ns": 0, "busy_ns": 4}
        | {"unknown_ns": 0},
        origin
        | device
        | names
        | {"serial": 4, "row": "holding", "holding": "holding-a", "start_ns": end - 5}
        | {"end_ns": end, "source": "runtime", "evidence": "runtime_cdi", "counted_ns": 5}
        | {"gap_ns": 0, "held_ns": 5, "xids": "{}"},
        origin
        | names
        | {"serial": 5, "row": "container", "owner_kind": "Job", "owner_name": "train"}
        | {"labels": "{}", "labels_cut": 0},
    ]


def test_a_ledger_without_an_archive_has_no_data_of_one(world: World) -> None:
    world.usage(40, "a", (5, 4, 3))
    world.hold("a", 100, 5)
    world.retain(1)
    assert world.backlog() is None
    tables = ("late_hours", "late_device_hours", "sealed_items", "changed_items", "outbox")
    for table in tables:
        assert not world.connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608


def test_a_late_gain_is_a_further_row_with_only_the_gain(world: World) -> None:
    world.usage(0, "a", (5, 4, 3))
    world.wait(75)
    world.write()
    world.usage(1, "a", (2, None, 1))
    world.write()
    late = [row for row in world.rows() if row["row"] == "usage"][-1]
    assert (late["held_ns"], late.get("busy_ns"), late["energy_mj"]) == (2, None, 1)
    assert kinds(world.rows()) == ["usage", "device", "container", "usage", "device"]


def test_a_gain_of_an_hour_that_is_not_sealed_is_not_late(world: World) -> None:
    """The first hour that is not sealed, and later ones."""
    world.usage(2, "a", (5, 4, 3))
    world.write()
    (sealed,) = world.connection.execute("SELECT sealed_before FROM archive").fetchone()
    for ago in (world.now_ns // HOUR_NS - sealed, 0):
        world.usage(ago, "a", (2, 2, 1))
    assert not world.connection.execute("SELECT * FROM late_hours").fetchall()
    world.wait(200)
    world.write()
    check_archive(world)


def test_a_late_gain_keeps_the_names_that_it_needs(world: World) -> None:
    """Even if retention has removed all other data of the container and the device."""
    world.usage(100, "a", (5, 4, 3), 1)
    world.write()
    world.usage(100, "a", (1, 1, 1), 1)
    world.retain(1)
    assert not world.connection.execute("SELECT * FROM hours").fetchall()
    world.write()
    check_archive(world)


def test_facts_that_change_are_repeated_for_each_sealed_day(world: World) -> None:
    world.usage(30, "a", (5, 4, 3))
    world.usage(3, "a", (5, 4, 3))
    world.write()
    world.describe("a", "train")
    world.describe("a", "train")
    world.write()
    facts = [row for row in world.rows() if row["row"] == "container"]
    days = ["2027-01-14", "2027-01-15"]
    assert [(row["day"], row["owner_name"]) for row in facts] == [
        *((day, "") for day in days),
        *((day, "train") for day in days),
    ]


def test_a_holding_that_ends_on_another_day_is_withdrawn_on_the_earlier_one(world: World) -> None:
    world.hold("a", 1500, 5)
    world.write()
    world.hold("a", 120, 7)
    world.write()
    first, withdrawn, valid = [row for row in world.rows() if row["row"] == "holding"]
    assert withdrawn["day"] == first["day"] < valid["day"]
    assert "end_ns" not in withdrawn
    assert valid["held_ns"] == 7


@pytest.mark.slow
def test_a_long_ledger_is_sealed_in_many_transactions(world: World) -> None:
    """When an archive is first switched on."""
    batch = Batch(devices={device.uuid: device for device in DEVICES})
    for hour in range(NOON - 600, NOON):
        for pod in range(12):
            key = hour, UUID, subject_of(f"p{pod}")
            batch.add(*key, Amounts(1, 1, 1, 2, 1))
            world.hours[key], world.contests[key] = (1, 1, 1), 2
        world.gaps[hour, UUID] = 0
    world.store.write_batch(batch)
    world.wait(60)
    most, written = 0, 0
    while world.write(killed=0) and written != len(world.archive):
        written = len(world.archive)
    for rows in world.archive.values():
        most = max(most, len(rows))
        assert len({row["day"] for row in rows}) == 1
        assert len(rows) <= MAX_OBJECT_ROWS
    check_archive(world)
    assert 12 * 24 < most < 12 * 24 * 2
    assert len(world.archive) < 60


def test_retention_by_age_keeps_what_is_not_sealed(world: World) -> None:
    world.usage(100, "a", (5, 4, 3))
    world.hold("a", 6000, 5)
    assert world.write()
    world.usage(90, "a", (1, 1, 1))
    world.usage(0, "b", (5, 4, 3))
    world.wait(10 * 24 * 60)
    assert world.retain(1) == 0
    assert world.write()
    check_archive(world)
    world.retain(1)
    assert world.connection.execute("SELECT count(*) FROM hours").fetchone() == (0,)
    world.write()
    check_archive(world)


def test_retention_by_size_removes_what_is_not_sealed_and_counts_it(world: World) -> None:
    world.usage(100, "a", (5, 4, 3))
    assert world.write()
    world.usage(0, "b", (5, 4, 3))
    world.hold("b", 0, 5)
    world.wait(200)
    assert world.retain(0, max_bytes=1) == 3
    rows = world.rows()
    assert world.write()
    assert world.rows()[: len(rows)] == rows
    assert [row["pod"] for row in world.rows() if row["row"] == "usage"] == ["a"]


def test_rows_in_the_outbox_are_the_same_after_anything(world: World, tmp_path: Path) -> None:
    """Objects that could not be written keep their rows; more is sealed only after them."""
    world.usage(30, "a", (5, 4, 3))
    world.hold("a", 1500, 5)
    assert not world.write(killed=40)
    pending = first_object(world.connection)
    assert pending is not None
    world.usage(30, "a", (1, 1, 1))
    world.describe("a", "other")
    world.drop("a")
    world.retain(1)
    assert first_object(world.connection) == pending
    assert world.write()
    check_archive(world)
