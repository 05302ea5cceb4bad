"""What `podgpu doctor` looks at for the nvml source: driver, library, nodes, GPUs."""

import asyncio
from functools import partial
from typing import Final

from pipeline.doctor.checks import CHECKS
from pipeline.doctor.context import DoctorContext, in_thread
from pipeline.doctor.counters import asked
from pipeline.doctor.examining import late
from pipeline.doctor.findings import Finding
from pipeline.fields import FieldPlan, Row
from pipeline.registry import ENTRIES
from sources.nvml.diagnosis import board, host, opening
from sources.nvml.gpm import METRICS
from sources.nvml.options import Options

_PART: Final = 0.9
"""Of the deadline: the rest is for what is looked at without NVML."""

_HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The kernel gives the first of all pid namespaces this number (PROC_PID_INIT_INO)."""


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `nvml.*`: first what stands in files, then the library, in a thread of its own."""
    driver = await in_thread(partial(host.look, ctx.roots))
    found = [driver.finding]
    # A driver that hangs must not cost what was found without it.
    patience = ctx.deadline * _PART
    told: list[Finding] = []
    try:
        async with asyncio.timeout(patience):
            plan = await asked(ctx)
            await in_thread(partial(_look, driver, plan, ctx, told))
    except TimeoutError:
        told.append(late("NVML", patience, ENTRIES["source", "nvml"].late))
    return [*found, *told, await in_thread(partial(_processes, options, ctx))]


def _look(driver: host.Driver, plan: FieldPlan, ctx: DoctorContext, told: list[Finding]) -> None:
    """Open NVML as the source does and look at every GPU. Blocking.

    What is found goes into `told` as it is found: a driver may hang at any call.
    """
    found, works = opening.look(driver, ctx)
    told += found
    if works:
        told += board.look(driver, _profiling(plan, elsewhere=ctx.has("hostengine")))


def _profiling(plan: FieldPlan, *, elsewhere: bool) -> board.Profiling:
    """Return the fields of GPM that the page is to have, whatever group they are in."""
    usual = FieldPlan()
    rows = [row for row in plan.rows if row.field.name in METRICS]
    chosen = [row for row in rows if row.field.name not in usual or row != Row(row.field)]
    return board.Profiling([row.field.name for row in rows], len(chosen), elsewhere)


def _processes(options: Options, ctx: DoctorContext) -> Finding:
    check = CHECKS["nvml.processes"]
    place = ctx.roots.proc / "self/ns/pid"
    if not options.processes:
        return check.skipped(str(place), "processes: false")
    try:
        namespace = str(place.readlink())
    except OSError:
        return check.skipped(str(place), "can't be read")
    if namespace == _HOST_PID_NAMESPACE:
        return check.ok(str(place), "the host's pid namespace")
    return check.skipped(
        str(place),
        f"a namespace of its own ({namespace}): processes of other containers are not shown; "
        "hostPID: true for podgpu's pod shows them to who needs them",
    )
