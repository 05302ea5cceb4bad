"""What the tests of the doctor's look at NVML share."""

from pipeline.component.findings import Finding
from pipeline.diagnostics.context import DoctorContext
from sources.nvml.doctor import examine
from sources.nvml.options import Options

PROFILING = "counters: {also: [profiling]}\n"


async def looked(ctx: DoctorContext, options: Options | None = None) -> list[Finding]:
    return await examine(options or Options(), ctx)
