"""The examinations of a node that no component owns."""

from config.schema import Config
from pipeline.doctor import counters, naming, ports, queues, timing, twins, webs
from pipeline.doctor.context import DoctorContext
from pipeline.doctor.examining import Examination, of_components, run
from pipeline.doctor.findings import Finding


def of_the_node(config: Config, ctx: DoctorContext) -> list[Examination]:
    """Return the examinations that are made whatever is configured."""
    return [
        Examination("the node's name", lambda: naming.examine(ctx)),
        Examination("the clock", lambda: timing.examine(ctx)),
        Examination("the list of metrics", lambda: counters.examine(config.counters, ctx)),
        Examination("the web config", lambda: webs.examine(ctx)),
        Examination("the ports", lambda: ports.examine(ctx)),
        Examination("the processes", lambda: twins.examine(ctx)),
        *queues.examinations(config, ctx),
    ]


async def diagnose(ctx: DoctorContext) -> list[Finding]:
    """Look at everything that a configuration needs; takes a little over `ctx.deadline` at most."""
    config = ctx.config
    return await run([*of_the_node(config, ctx), *of_components(config, ctx)], ctx.deadline)
