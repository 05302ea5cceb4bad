"""Compare what podgpu showed and stored with the reference."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.model import ContainerUsage, DeviceUsage
from tests.accounting.account import Account
from tests.accounting.actions import (
    MS,
    Action,
    ClockSet,
    ContainerName,
    Killed,
    Rebooted,
    Reloaded,
    S,
    SamplesReported,
    Story,
    TimePassed,
)
from tests.accounting.player import RunResult
from tests.accounting.podgpu_run import COMMIT_INCREASE
from tests.accounting.reference import Reference
from tests.accounting.reference_types import Sum, UsageTotals
from tests.accounting.source_events import NAMES, container_name

KEPT = 300 * S
"""How long an ended container is shown."""


TICK = 3 * S
"""By how much podgpu may notice late that time has passed while nothing happens."""


class Differences(list[str]):
    """The differences, as text."""

    def same(self, where: str, found: object, expected: object) -> None:
        if found != expected:
            self.append(f"{where}: podgpu {found}, reference {expected}")

    def fits(self, where: str, found: int | None, expected: Sum | None) -> None:
        if expected is None or found is None:
            if found is not None or expected is not None:
                self.append(f"{where}: podgpu {found}, reference {expected}")
        elif not expected.fits(found):
            value, difference = float(expected.value), float(found - expected.value)
            stored = f"podgpu {found}, reference {value} ± {expected.slack}: {difference:+}"
            self.append(f"{where}: {stored}")


def compare(story: Story, results: list[RunResult]) -> Differences:
    """Return the differences in all runs of a story."""
    found = Differences()
    earlier: list[Action] = []
    for number, run in enumerate(results):
        reference_at_end = Reference(story)
        reference_at_end.play([*earlier, *run.actions])
        run_differences = Differences()
        _page(run_differences, reference_at_end, run)
        found.extend(f"run {number}, page: {one}" for one in run_differences)
        last_written = _committed(found, reference_at_end, run, number, story.commit)
        # podgpu also notices that time has passed while nothing happens.
        earlier += [TimePassed(run.when)] if run.when >= run.actions[0].at else []
        earlier += [
            action
            for at, action in enumerate(run.actions)
            if at <= last_written or _survives_kill(action)
        ]
        reference = reference_at_end
        if last_written + 1 < len(run.actions):
            reference = Reference(story)
            reference.play(earlier)
        run_differences = Differences()
        _file(run_differences, reference, run.path, run.end, last=number + 1 == len(results))
        found.extend(f"run {number}, file: {one}" for one in run_differences)
        if found:
            break
    return found


def _survives_kill(action: Action) -> bool:
    return isinstance(action, ClockSet | Rebooted | Killed)


def _committed(
    found: Differences, reference_at_end: Reference, run: RunResult, number: int, commit: int
) -> int:
    """Return the number of the last action that the file contains; check that not too much is lost.

    By the times in the file, this is the last sample or one before it.
    """
    samples = [
        at
        for at, action in enumerate(run.actions)
        if isinstance(action, SamplesReported) and action.by == "gpus"
    ]
    if run.ended != "killed":
        return len(run.actions)
    totals = {
        NAMES[str(uuid)]: int(stored)
        for uuid, stored in rows(
            run.path,
            "SELECT d.uuid, sum(h.accounted_ns + h.gap_ns) FROM device_hours AS h "
            "JOIN devices AS d ON d.id = h.device GROUP BY 1",
        )
    }
    expected: dict[str, int] = defaultdict(int)
    last_written, found_match = -1, not any(totals.values())
    before = dict(reference_at_end.accounts)
    for name, account in before.items():
        first = run.actions[0].at
        expected[name] = max((t for at, t in account.log.items() if at < first), default=0)
    found_match = all(totals.get(name, 0) == expected[name] for name in before)
    changes = []
    for at in samples:
        action = run.actions[at]
        assert isinstance(action, SamplesReported)
        changed = False
        for sample in action.samples:
            if sample.device in before:
                known = expected[sample.device]
                expected[sample.device] = before[sample.device].log.get(sample.at, known)
                changed |= expected[sample.device] != known
        # A sample that changes no time can't be recognized in the file.
        if changed:
            changes.append(at)
        if all(totals.get(name, 0) == expected[name] for name in before):
            last_written, found_match = changes[-1] if changes else -1, True
    if not found_match:
        found.append(
            f"run {number}: no sample has the times that the file has: {totals} {dict(expected)}"
        )
    lost = [at for at in changes if at > last_written]
    # Each reload of the ledger makes the commit interval longer.
    commit += sum(
        COMMIT_INCREASE for action in run.actions if action == Reloaded(action.at, "usage")
    )
    if lost and run.actions[-1].at - run.actions[lost[0]].at > commit + MS:
        found.append(f"run {number}: more than a commit interval was lost")
    after = lost[0] if lost else len(run.actions)
    if not (last_written < run.written <= after or not any(totals.values())):
        found.append(
            f"run {number}: actions {last_written} to {after} are in the file, not {run.written}"
        )
    return run.written - 1


def _page(found: Differences, expected: Reference, run: RunResult) -> None:
    usage = run.page.usage
    shown = {NAMES[uuid]: one for uuid, one in usage.devices.items()} if usage else {}
    for name, account in expected.accounts.items():
        if name not in shown:
            if account.first is None or (account.instances and not account.energy_known):
                continue  # the driver hasn't shown it since the start, or it has no amounts
            found.append(f"{name}: not on the page")
            continue
        account.expire(run.end)
        _device(found, name, shown[name], account, run.end)
    for name in set(shown) - set(expected.accounts):
        found.append(f"{name}: only podgpu has an account")


def _device(found: Differences, name: str, shown: DeviceUsage, account: Account, end: int) -> None:
    for container, one in parts_of(shown).items():
        if container in account.containers:
            stale = end > account.memory_good
            if account.undecided(end, TICK):
                continue
            _compare_container(
                found,
                f"{name} {container}",
                one,
                account.containers[container],
                stale=stale,
                sampled_at=account.at,
            )
    stored = {
        "elapsed": shown.elapsed_ns,
        "unheld": shown.unheld_ns,
        "unknown": shown.unknown_ns,
        "busy": shown.busy_ns,
        "busy_unattributed": shown.busy_unattributed_ns,
        "energy": shown.energy_mj,
        "energy_unattributed": shown.energy_unattributed_mj,
    }
    for what, value in stored.items():
        unknown = (what.startswith("busy") and not account.busy_known) or (
            what.startswith("energy") and not account.energy_known
        )
        found.fits(f"{name} {what}", value, None if unknown else account.on_page(what))
    for container, usage in account.containers.items():
        if usage.current is not None and container not in parts_of(shown):
            found.append(f"{name} {container}: not on the page")


def parts_of(shown: DeviceUsage) -> dict[ContainerName, ContainerUsage]:
    return {container_name(one.subject): one for one in shown.containers}


def _compare_container(
    found: Differences,
    where: str,
    one: ContainerUsage,
    usage: UsageTotals,
    *,
    stale: bool,
    sampled_at: int,
) -> None:
    expected = usage.current is not None or usage.pending
    found.same(f"{where} is running", one.holding is not None, expected)
    if (
        one.ended is None
        and usage.current is not None
        and not stale
        and usage.appeared_at <= sampled_at
    ):
        found.same(f"{where} memory", one.memory_bytes, usage.memory)


def _file(found: Differences, expected: Reference, path: Path, end: int, *, last: bool) -> None:
    hours: dict[tuple[str, int], tuple[Any, ...]] = {
        (NAMES[str(uuid)], int(hour)): tuple(stored)
        for uuid, hour, *stored in rows(
            path,
            "SELECT d.uuid, h.hour, accounted_ns, gap_ns, busy_ns, energy_mj "
            "FROM device_hours AS h JOIN devices AS d ON d.id = h.device",
        )
    }
    for name, account in expected.accounts.items():
        if account.instances:
            # It has no time of its own, and the hours of its energy are not compared.
            own = [hours.pop(key) for key in [*hours] if key[0] == name]
            energy = sum(each[3] or 0 for each in own)
            found.fits(f"{name} energy", energy, account.energy)
            continue
        for hour, sums in account.hours.items():
            stored = hours.pop((name, hour), (0, 0, None, None))
            for at, what in enumerate(("accounted", "gap", "busy", "energy")):
                found.fits(f"{name} hour {hour} {what}", stored[at] or 0, sums[what])
    for (name, hour), stored in hours.items():
        if any(stored):
            found.append(f"{name} hour {hour}: only podgpu has {stored}")
    _containers(found, expected, path)
    _gaps(found, expected, path)
    if last:
        _holdings(found, expected, path, end)


def _containers(found: Differences, expected: Reference, path: Path) -> None:
    stored = {
        (NAMES[str(uuid)], f"{pod}/{name}/{uid}"): sums
        for uuid, pod, name, uid, *sums in rows(
            path,
            "SELECT d.uuid, c.pod, c.container, c.uid, sum(h.held_ns), sum(h.busy_ns), "
            "sum(h.energy_mj) FROM hours AS h JOIN devices AS d ON d.id = h.device "
            "JOIN containers AS c ON c.id = h.container GROUP BY 1, 2, 3, 4",
        )
    }
    for name, account in expected.accounts.items():
        for container, usage in account.containers.items():
            held, busy, energy = stored.pop((name, container), (0, None, None))
            found.fits(f"{name} {container} held", held, usage.held)
            found.fits(f"{name} {container} busy", busy or 0, usage.busy)
            found.fits(f"{name} {container} energy", energy or 0, usage.energy)
    for (name, container), sums in stored.items():
        if any(sums):
            found.append(f"{name} {container}: only podgpu has {sums}")


def _gaps(found: Differences, expected: Reference, path: Path) -> None:
    """Adjacent gaps may be one row."""
    stored = {
        (NAMES[str(uuid)], str(reason)): int(length)
        for uuid, reason, length in rows(
            path,
            "SELECT d.uuid, g.reason, sum(g.end_ns - g.start_ns) FROM gaps AS g "
            "JOIN devices AS d ON d.id = g.device GROUP BY 1, 2",
        )
    }
    known: Counter[tuple[str, str]] = Counter()
    for name, account in expected.accounts.items():
        for start, end, reason in account.gaps:
            known[name, reason] += end - start
    found.same("gaps", stored, {key: length for key, length in known.items() if length})


@dataclass(frozen=True)
class Row:
    """A holding in the file."""

    device: str
    container: ContainerName
    length: int
    ended: bool
    counted: int
    gap: int
    held: int
    busy: int | None
    energy: int | None
    peak: int | None
    xids: str


def _holdings(found: Differences, expected: Reference, path: Path, end: int) -> None:
    stored: dict[tuple[str, ContainerName], list[Row]] = defaultdict(list)
    for uuid, pod, container_, uid, *rest in rows(
        path,
        "SELECT d.uuid, c.pod, c.container, c.uid, "
        "ifnull(g.end_ns, g.until_ns) - g.start_ns, g.end_ns IS NOT NULL, counted_ns, gap_ns, "
        "held_ns, busy_ns, energy_mj, memory_peak_bytes, xids "
        "FROM holdings AS g JOIN devices AS d ON d.id = g.device "
        "JOIN containers AS c ON c.id = g.container",
    ):
        name, container = NAMES[str(uuid)], f"{pod}/{container_}/{uid}"
        stored[name, container].append(Row(name, container, *rest))
    for name, account in expected.accounts.items():
        for container, usage in account.containers.items():
            rows_ = [
                row for row in stored.pop((name, container), []) if row.length or row.xids != "{}"
            ]
            if usage.pending or account.undecided(end, TICK):
                continue  # it isn't known yet whether the holding continues
            every = [one for one in usage.holdings if one.counted or one.gap or one.xids]
            own = [one for one in every if (one.final and end - one.late > TICK) or one.end is None]
            lengths = Counter((one.counted + one.gap, one.counted) for one in own)
            known = [row for row in rows_ if (row.length, row.counted) in lengths]
            not_final = [(row.length, row.counted) for row in rows_ if row not in known]
            # A holding that has ended and isn't final is not reported yet.
            if len(known) != len(own) or len(not_final) > len(every) - len(own):
                shown = [(row.length, row.counted, row.ended) for row in rows_]
                text = f"podgpu {shown}, reference {[(*key, n) for key, n in lengths.items()]}"
                found.append(f"{name} {container} holdings (length, counted): {text}")
                continue
            rows_ = known
            ordered = sorted(own, key=lambda one: (one.counted + one.gap, one.counted))
            for row, one in zip(
                sorted(rows_, key=lambda r: (r.length, r.counted)), ordered, strict=True
            ):
                where = f"{name} {container} holding of {row.length}"
                found.same(f"{where} ended", bool(row.ended), one.end is not None)
                found.same(f"{where} counted", (row.counted, row.gap), (one.counted, one.gap))
                found.fits(f"{where} held", row.held, one.held)
                found.fits(f"{where} busy", row.busy or 0, one.busy)
                found.fits(f"{where} energy", row.energy or 0, one.energy)
                if not (one.gap and one.peak is None and row.peak == 0):
                    # It is not specified whether a sample from before its return shows it.
                    found.same(f"{where} memory peak", row.peak, one.peak)
                xids = "{" + ",".join(f'"{c}":{n}' for c, n in sorted(one.xids.items())) + "}"
                found.same(f"{where} xids", row.xids.replace(" ", ""), xids)
    for (name, container), rest in stored.items():
        remaining = [row for row in rest if row.length or row.xids != "{}"]
        if remaining:
            found.append(f"{name} {container}: only podgpu has holdings {remaining}")


def rows(path: Path, text: str) -> Iterable[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()
