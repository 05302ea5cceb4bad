"""What `podgpu doctor` looks at for the nvml source: driver, library, nodes, GPUs."""

import asyncio
from functools import partial
from typing import Final

from pipeline.component.findings import Finding
from pipeline.component.registry import ENTRIES
from pipeline.diagnostics.check_runner import late
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.counters_list_check import requested_plan
from pipeline.fields import FieldPlan, Row
from pipeline.host.procfs import ROOT
from sources.nvml import process_owners
from sources.nvml.diagnosis import driver_files, gpu_checks, library_checks
from sources.nvml.gpm import METRICS
from sources.nvml.options import Options

_PART: Final = 0.9
"""Of the deadline: the rest is for what is looked at without NVML."""


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `nvml.*`: first what stands in files, then the library, in a thread of its own."""
    driver = await in_thread(partial(driver_files.read_driver, ctx.roots))
    found = [driver.finding]
    # A driver that hangs must not cost what was found without it.
    patience = ctx.deadline * _PART
    told: list[Finding] = []
    try:
        async with asyncio.timeout(patience):
            plan = await requested_plan(ctx)
            await in_thread(partial(_check_nvml, driver, plan, ctx, told))
    except TimeoutError:
        told.append(late("NVML", patience, ENTRIES["source", "nvml"].timeout_fix))
    return [*found, *told, await in_thread(partial(_processes, options, ctx))]


def _check_nvml(
    driver: driver_files.Driver, plan: FieldPlan, ctx: DoctorContext, findings: list[Finding]
) -> None:
    """Open NVML as the source does and look at every GPU. Blocking.

    What is found goes into `told` as it is found: a driver may hang at any call.
    """
    found, works = library_checks.check_library(driver, ctx)
    findings += found
    if works:
        findings += gpu_checks.check_gpus(driver, _profiling(plan, elsewhere=ctx.has("hostengine")))


def _profiling(plan: FieldPlan, *, elsewhere: bool) -> gpu_checks.Profiling:
    """Return the fields of GPM that the page is to have, whatever group they are in."""
    usual = FieldPlan()
    rows = [row for row in plan.rows if row.field.name in METRICS]
    chosen = [row for row in rows if row.field.name not in usual or row != Row(row.field)]
    return gpu_checks.Profiling([row.field.name for row in rows], len(chosen), elsewhere)


def _processes(options: Options, ctx: DoctorContext) -> Finding:
    check = CHECKS["nvml.processes"]
    chosen = options.proc != ROOT
    root = options.proc if chosen else ctx.roots.proc
    place = str(root if chosen else root / "self/ns/pid")
    if not options.processes:
        return check.skip(place, "processes: false")
    why = process_owners.foreign_reason(root, is_configured=chosen)
    if not why:
        return check.ok(place, "the processes of the host")
    return check.skip(
        place,
        f"{why}: processes of other containers are not shown, and who used how much is told by who "
        "holds it; what a shared device does is nobody's then. hostPID: true for podgpu's pod "
        "shows them",
    )
