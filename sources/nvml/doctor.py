"""The checks of `podgpu doctor` for the nvml source: driver, library, device files, GPUs."""

import asyncio
from functools import partial
from typing import Final

from pipeline.component.findings import Finding
from pipeline.component.registry import KINDS
from pipeline.diagnostics.check_runner import timed_out
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.counters_list_check import requested_plan
from pipeline.fields import FieldPlan, Row
from pipeline.host.procfs import ROOT
from sources.nvml import process_owners
from sources.nvml.checks import CHECKS
from sources.nvml.diagnosis import gpu_checks, library_checks
from sources.nvml.gpm import METRICS
from sources.nvml.options import Options

_PART: Final = 0.9
"""Part of the deadline for NVML; the rest is for checks without NVML."""


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Run the checks `nvml.*`: first files of the driver, then the library, in a thread."""
    driver = await in_thread(partial(library_checks.read_driver, ctx.roots))
    found = [driver.finding]
    # If the driver hangs, the findings from files must still be reported.
    timeout_s = ctx.deadline * _PART
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(timeout_s):
            plan = await requested_plan(ctx)
            await in_thread(partial(_check_nvml, driver, plan, ctx, findings))
    except TimeoutError:
        findings.append(timed_out("NVML", timeout_s, KINDS["source", "nvml"].timeout_fix))
    return [*found, *findings, await in_thread(partial(_processes, options, ctx))]


def _check_nvml(
    driver: library_checks.Driver, plan: FieldPlan, ctx: DoctorContext, findings: list[Finding]
) -> None:
    """Open NVML as the source does and check every GPU. Blocking.

    Adds to `findings` one by one, since the driver may hang at any call.
    """
    found, works = library_checks.check_library(driver, ctx)
    findings += found
    if works:
        findings += gpu_checks.check_gpus(driver, _profiling(plan, elsewhere=ctx.has("hostengine")))


def _profiling(plan: FieldPlan, *, elsewhere: bool) -> gpu_checks.Profiling:
    """Return the requested fields that need GPM."""
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
    reason = process_owners.hidden_reason(root, is_configured=chosen)
    if not reason:
        return check.ok(place, "the processes of the host")
    return check.skip(
        place,
        f"{reason}: the driver does not show the processes of other containers, so podgpu "
        "attributes usage by holder only, and usage of shared devices is unattributed; set "
        "hostPID: true for podgpu's pod",
    )
