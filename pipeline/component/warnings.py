"""Logs a component's warning and shows it as the component's last problem."""

import logging

from pipeline.component.contracts import ComponentContext


def warn(ctx: ComponentContext, text: str, *values: object, is_new: bool = True) -> None:
    """Log a warning, and record it as the component's last problem (on the status page).

    Call it in the event loop.

    Args:
        ctx: the component's context.
        text: the message; with values, a format as `logging` takes it.
        values: values for the format.
        is_new: whether to log at level warning; if not, log at level debug.
    """
    ctx.log.log(logging.WARNING if is_new else logging.DEBUG, text, *values)
    message = text % values if values else text
    ctx.meter.set_problem(message, ctx.clock.now(), warning=True)
