"""Runs all checks of a node: those of its components, and those that belong to no component."""

from functools import partial

from config.schema import Config
from pipeline.component.findings import Finding
from pipeline.diagnostics import counters_list_check, duplicate_daemons, node_name_check
from pipeline.diagnostics.check_runner import Examination, of_components, run
from pipeline.diagnostics.context import DoctorContext
from podgpu.doctor import clock_check, delivery_queues, listen_ports, web_config


def of_the_node(config: Config, ctx: DoctorContext) -> list[Examination]:
    """Return the examinations that belong to no single source, and those of the queues."""
    return [
        Examination("the node's name", partial(node_name_check.examine, ctx)),
        Examination("the clock", partial(clock_check.examine, ctx)),
        Examination(
            "the list of metrics", partial(counters_list_check.examine, config.counters, ctx)
        ),
        Examination("the web config", partial(web_config.examine, ctx)),
        Examination("the ports", partial(listen_ports.examine, ctx)),
        Examination("the processes", partial(duplicate_daemons.examine, ctx)),
        *delivery_queues.examinations(config, ctx),
    ]


async def diagnose(ctx: DoctorContext) -> list[Finding]:
    """Run all checks of a node. They take a little over `ctx.deadline` seconds at most."""
    config = ctx.config
    return await run([*of_the_node(config, ctx), *of_components(config, ctx)], ctx.deadline)
