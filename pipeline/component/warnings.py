"""What a component warns of, though it goes on: for the log, and for those who look at it."""

import logging

from pipeline.component.contracts import SinkContext, SourceContext


def warn(ctx: SinkContext | SourceContext, text: str, *values: object, is_new: bool = True) -> None:
    """Log a warning, and let it stand as the component's last trouble.

    Call it in the event loop.

    Args:
        ctx: the component's.
        text: for people; with values, a format as `logging` takes it.
        values: what is put into it.
        is_new: it wasn't said before; else the log has it among what serves to find errors alone.
    """
    ctx.log.log(logging.WARNING if is_new else logging.DEBUG, text, *values)
    told = text % values if values else text
    ctx.meter.set_problem(told, ctx.clock.now(), warning=True)
