"""Holds what podgpu has shown and written against the reference."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.model import ContainerUsage, DeviceUsage
from tests.accounting.account import Account
from tests.accounting.exact import Reference
from tests.accounting.given_out import (
    MS,
    Act,
    Killed,
    Looked,
    Rebooted,
    Reloaded,
    S,
    Set,
    Story,
    Waited,
    Who,
)
from tests.accounting.parts import Had, Sum
from tests.accounting.playing import Seen
from tests.accounting.reporting import NAMES, who_of
from tests.accounting.running import MORE

KEPT = 300 * S
"""How long a container that has ended is shown."""


TICK = 3 * S
"""How late podgpu may hear of the time while nothing happens."""


class Differences(list[str]):
    """What differs, in words."""

    def same(self, where: str, found: object, right: object) -> None:
        if found != right:
            self.append(f"{where}: podgpu {found}, reference {right}")

    def fits(self, where: str, found: int | None, right: Sum | None) -> None:
        if right is None or found is None:
            if found is not None or right is not None:
                self.append(f"{where}: podgpu {found}, reference {right}")
        elif not right.fits(found):
            value, apart = float(right.value), float(found - right.value)
            given_out = f"podgpu {found}, reference {value} ± {right.slack}: {apart:+}"
            self.append(f"{where}: {given_out}")


def compare(story: Story, seen: list[Seen]) -> Differences:
    """Return what differs, in all runs of a story."""
    found = Differences()
    kept: list[Act] = []
    for number, run in enumerate(seen):
        at_end = Reference(story)
        at_end.play([*kept, *run.acts])
        differs = Differences()
        _page(differs, at_end, run)
        found.extend(f"run {number}, page: {one}" for one in differs)
        cut = _committed(found, at_end, run, number, story.commit)
        # Of time podgpu hears on its own too, where nothing happens.
        kept += [Waited(run.when)] if run.when >= run.acts[0].at else []
        kept += [act for at, act in enumerate(run.acts) if at <= cut or _lasts(act)]
        whole = at_end
        if cut + 1 < len(run.acts):
            whole = Reference(story)
            whole.play(kept)
        differs = Differences()
        _file(differs, whole, run.path, run.end, last=number + 1 == len(seen))
        found.extend(f"run {number}, file: {one}" for one in differs)
        if found:
            break
    return found


def _lasts(act: Act) -> bool:
    return isinstance(act, Set | Rebooted | Killed)


def _committed(found: Differences, at_end: Reference, run: Seen, number: int, commit: int) -> int:
    """Return the last act of a run that the file has; see that it isn't too old.

    By the times that stand in the file this was the last look, or one before it.
    """
    looks = [at for at, act in enumerate(run.acts) if isinstance(act, Looked) and act.by == "gpus"]
    if run.ended != "killed":
        return len(run.acts)
    totals = {
        NAMES[str(uuid)]: int(given_out)
        for uuid, given_out in rows(
            run.path,
            "SELECT d.uuid, sum(h.accounted_ns + h.gap_ns) FROM device_hours AS h "
            "JOIN devices AS d ON d.id = h.device GROUP BY 1",
        )
    }
    right: dict[str, int] = defaultdict(int)
    cut, fitting = -1, not any(totals.values())
    before = dict(at_end.accounts)
    for name, account in before.items():
        first = run.acts[0].at
        right[name] = max((t for at, t in account.log.items() if at < first), default=0)
    fitting = all(totals.get(name, 0) == right[name] for name in before)
    changes = []
    for at in looks:
        act = run.acts[at]
        assert isinstance(act, Looked)
        changed = False
        for look in act.looks:
            if look.device in before:
                known = right[look.device]
                right[look.device] = before[look.device].log.get(look.at, known)
                changed |= right[look.device] != known
        # Whether the file has a look that changes none of its times nobody can tell.
        if changed:
            changes.append(at)
        if all(totals.get(name, 0) == right[name] for name in before):
            cut, fitting = changes[-1] if changes else -1, True
    if not fitting:
        found.append(
            f"run {number}: no look has the times that the file has: {totals} {dict(right)}"
        )
    lost = [at for at in changes if at > cut]
    # Each reload of the ledger makes its interval longer.
    commit += sum(MORE for act in run.acts if act == Reloaded(act.at, "usage"))
    if lost and run.acts[-1].at - run.acts[lost[0]].at > commit + MS:
        found.append(f"run {number}: more than an interval of commits was lost")
    after = lost[0] if lost else len(run.acts)
    if not (cut < run.written <= after or not any(totals.values())):
        found.append(f"run {number}: acts {cut} to {after} are in the file, and not {run.written}")
    return run.written - 1


def _page(found: Differences, right: Reference, run: Seen) -> None:
    usage = run.page.usage
    shown = {NAMES[uuid]: one for uuid, one in usage.devices.items()} if usage else {}
    for name, account in right.accounts.items():
        if name not in shown:
            if account.first is None or (account.instances and not account.energy_known):
                continue  # the driver hasn't shown it since the start, or there is nothing to show
            found.append(f"{name}: not on the page")
            continue
        account.expire(run.end)
        _device(found, name, shown[name], account, run.end)
    for name in set(shown) - set(right.accounts):
        found.append(f"{name}: podgpu alone has an account")


def _device(found: Differences, name: str, shown: DeviceUsage, account: Account, end: int) -> None:
    for whose, one in parts_of(shown).items():
        if whose in account.had:
            stale = end > account.memory_good
            if account.undecided(end, TICK):
                continue
            _container(
                found, f"{name} {whose}", one, account.had[whose], stale=stale, looked=account.at
            )
    given_out = {
        "elapsed": shown.elapsed_ns,
        "unheld": shown.unheld_ns,
        "unknown": shown.unknown_ns,
        "busy": shown.busy_ns,
        "busy_nobody": shown.busy_unattributed_ns,
        "energy": shown.energy_mj,
        "energy_nobody": shown.energy_unattributed_mj,
    }
    for what, value in given_out.items():
        unknown = (what.startswith("busy") and not account.busy_known) or (
            what.startswith("energy") and not account.energy_known
        )
        found.fits(f"{name} {what}", value, None if unknown else account.on_page(what))
    for whose, had in account.had.items():
        live = had.live
        if live is not None and whose not in parts_of(shown):
            found.append(f"{name} {whose}: not on the page")


def parts_of(shown: DeviceUsage) -> dict[Who, ContainerUsage]:
    return {who_of(one.subject): one for one in shown.containers}


def _container(
    found: Differences, where: str, one: ContainerUsage, had: Had, *, stale: bool, looked: int
) -> None:
    there = had.live is not None or had.pending
    found.same(f"{where} is there", one.holding is not None, there)
    if one.ended is None and had.live is not None and not stale and had.came <= looked:
        found.same(f"{where} memory", one.memory_bytes, had.memory)


def _file(found: Differences, right: Reference, path: Path, end: int, *, last: bool) -> None:
    hours: dict[tuple[str, int], tuple[Any, ...]] = {
        (NAMES[str(uuid)], int(hour)): tuple(given_out)
        for uuid, hour, *given_out in rows(
            path,
            "SELECT d.uuid, h.hour, accounted_ns, gap_ns, busy_ns, energy_mj "
            "FROM device_hours AS h JOIN devices AS d ON d.id = h.device",
        )
    }
    for name, account in right.accounts.items():
        if account.instances:
            # It has no time of its own: in which hours its energy lies is another matter.
            mine = [hours.pop(key) for key in [*hours] if key[0] == name]
            whole = sum(each[3] or 0 for each in mine)
            found.fits(f"{name} energy", whole, account.energy)
            continue
        for hour, sums in account.hours.items():
            given_out = hours.pop((name, hour), (0, 0, None, None))
            for at, what in enumerate(("accounted", "gap", "busy", "energy")):
                found.fits(f"{name} hour {hour} {what}", given_out[at] or 0, sums[what])
    for (name, hour), given_out in hours.items():
        if any(given_out):
            found.append(f"{name} hour {hour}: podgpu alone has {given_out}")
    _spent(found, right, path)
    _gaps(found, right, path)
    if last:
        _holdings(found, right, path, end)


def _spent(found: Differences, right: Reference, path: Path) -> None:
    given_out = {
        (NAMES[str(uuid)], f"{pod}/{container}/{uid}"): sums
        for uuid, pod, container, uid, *sums in rows(
            path,
            "SELECT d.uuid, c.pod, c.container, c.uid, sum(h.held_ns), sum(h.busy_ns), "
            "sum(h.energy_mj) FROM hours AS h JOIN devices AS d ON d.id = h.device "
            "JOIN containers AS c ON c.id = h.container GROUP BY 1, 2, 3, 4",
        )
    }
    for name, account in right.accounts.items():
        for who, had in account.had.items():
            held, busy, energy = given_out.pop((name, who), (0, None, None))
            found.fits(f"{name} {who} held", held, had.held)
            found.fits(f"{name} {who} busy", busy or 0, had.busy)
            found.fits(f"{name} {who} energy", energy or 0, had.energy)
    for (name, who), sums in given_out.items():
        if any(sums):
            found.append(f"{name} {who}: podgpu alone has {sums}")


def _gaps(found: Differences, right: Reference, path: Path) -> None:
    """Gaps that follow each other at once may stand as one."""
    given_out = {
        (NAMES[str(uuid)], str(reason)): int(length)
        for uuid, reason, length in rows(
            path,
            "SELECT d.uuid, g.reason, sum(g.end_ns - g.start_ns) FROM gaps AS g "
            "JOIN devices AS d ON d.id = g.device GROUP BY 1, 2",
        )
    }
    known: Counter[tuple[str, str]] = Counter()
    for name, account in right.accounts.items():
        for start, end, reason in account.gaps:
            known[name, reason] += end - start
    found.same("gaps", given_out, {key: length for key, length in known.items() if length})


@dataclass(frozen=True)
class Row:
    """A holding in the file."""

    device: str
    who: Who
    length: int
    ended: bool
    counted: int
    gap: int
    held: int
    busy: int | None
    energy: int | None
    peak: int | None
    xids: str


def _holdings(found: Differences, right: Reference, path: Path, end: int) -> None:
    given_out: dict[tuple[str, Who], list[Row]] = defaultdict(list)
    for uuid, pod, container, uid, *rest in rows(
        path,
        "SELECT d.uuid, c.pod, c.container, c.uid, "
        "ifnull(g.end_ns, g.until_ns) - g.start_ns, g.end_ns IS NOT NULL, counted_ns, gap_ns, "
        "held_ns, busy_ns, energy_mj, memory_peak_bytes, xids "
        "FROM holdings AS g JOIN devices AS d ON d.id = g.device "
        "JOIN containers AS c ON c.id = g.container",
    ):
        name, who = NAMES[str(uuid)], f"{pod}/{container}/{uid}"
        given_out[name, who].append(Row(name, who, *rest))
    for name, account in right.accounts.items():
        for who, had in account.had.items():
            rows_ = [
                row for row in given_out.pop((name, who), []) if row.length or row.xids != "{}"
            ]
            if had.pending or account.undecided(end, TICK):
                continue  # whether it goes on isn't known yet
            every = [one for one in had.episodes if one.counted or one.gap or one.xids]
            mine = [
                one for one in every if (one.final and end - one.late > TICK) or one.end is None
            ]
            lengths = Counter((one.counted + one.gap, one.counted) for one in mine)
            known = [row for row in rows_ if (row.length, row.counted) in lengths]
            loose = [(row.length, row.counted) for row in rows_ if row not in known]
            # Of what has ended and isn't final nothing is to be told yet.
            if len(known) != len(mine) or len(loose) > len(every) - len(mine):
                shown = [(row.length, row.counted, row.ended) for row in rows_]
                text = f"podgpu {shown}, reference {[(*key, n) for key, n in lengths.items()]}"
                found.append(f"{name} {who} holdings (length, counted): {text}")
                continue
            rows_ = known
            ordered = sorted(mine, key=lambda one: (one.counted + one.gap, one.counted))
            for row, one in zip(
                sorted(rows_, key=lambda r: (r.length, r.counted)), ordered, strict=True
            ):
                where = f"{name} {who} holding of {row.length}"
                found.same(f"{where} ended", bool(row.ended), one.end is not None)
                found.same(f"{where} counted", (row.counted, row.gap), (one.counted, one.gap))
                found.fits(f"{where} held", row.held, one.held)
                found.fits(f"{where} busy", row.busy or 0, one.busy)
                found.fits(f"{where} energy", row.energy or 0, one.energy)
                if not (one.gap and one.peak is None and row.peak == 0):
                    # Whether a look that was taken before it came again shows it is left open.
                    found.same(f"{where} memory peak", row.peak, one.peak)
                xids = "{" + ",".join(f'"{c}":{n}' for c, n in sorted(one.xids.items())) + "}"
                found.same(f"{where} xids", row.xids.replace(" ", ""), xids)
    for (name, who), rest in given_out.items():
        left = [row for row in rest if row.length or row.xids != "{}"]
        if left:
            found.append(f"{name} {who}: podgpu alone has holdings {left}")


def rows(path: Path, text: str) -> Iterable[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()
