"""Helpers for the tests of the nvml doctor."""

from pipeline.component.findings import Finding
from pipeline.diagnostics.context import DoctorContext
from sources.nvml.doctor import examine
from sources.nvml.options import Options

PROFILING = "counters: {also: [profiling]}\n"


async def examined(ctx: DoctorContext, options: Options | None = None) -> list[Finding]:
    return await examine(options or Options(), ctx)
