"""The command: live in a terminal, or a table once."""

import argparse
import os
import sys
from functools import partial
from shutil import get_terminal_size
from typing import Final

from pipeline.base.clock import SystemClock
from pipeline.base.errors import ComponentError, PermanentError
from pipeline.status_page.problems import problems, summary
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.client_options import access_of
from podgpu.cli.output import EXIT_UNWRITTEN, complain, is_terminal, out, put
from podgpu.cli.terminal_text import terminal_safe
from podgpu.cli.top.body import table
from podgpu.cli.top.columns import heading, needed
from podgpu.cli.top.component_rows import components
from podgpu.cli.top.poller import Asker, ask
from podgpu.cli.top.ui_state import State

_FAILED: Final = 1
_WRONG: Final = 2

_WIDE: Final = 140
"""Columns where there is no terminal whose width counts."""


def top(arguments: argparse.Namespace) -> int:
    """`podgpu top`."""
    live = not arguments.once and is_terminal(out()) and is_terminal(sys.stdin)
    try:
        how = partial(ask, access=access_of(arguments, os.environ))
        status = how(arguments.url)
        if not live:
            text = "\n".join(plain(status, _width(status)))
            return 0 if put(text, "podgpu top: the table") else EXIT_UNWRITTEN
        # Not before it is known that somebody looks.
        from podgpu.cli.top.screen import show

        show(Asker(arguments.url, float(arguments.interval), SystemClock(), status, how))
    except ComponentError as error:
        complain(terminal_safe(f"podgpu: {error}"))
        return _WRONG if isinstance(error, PermanentError) else _FAILED
    return 0


def plain(status: StatusDocument, width: int) -> list[str]:
    """Return all there is to show, line by line."""
    state = State(whole=True)
    lines = [f"{status.node}: {summary(status)}, {status.time:%Y-%m-%d %H:%M:%S} UTC"]
    lines += [f"! {problem}" for problem in problems(status)]
    lines += ["", heading(width), *(line.text for line in table(status, state, width)), ""]
    lines += components(status, width)
    return [terminal_safe(line).rstrip() for line in lines]


def _width(status: StatusDocument) -> int:
    """Return the terminal's width; without one, each name is on one line, for who searches it."""
    if is_terminal(out()):
        return get_terminal_size((_WIDE, 0)).columns
    devices = [device for gpu in status.gpus or () for device in (gpu, *gpu.instances)]
    return needed((each for device in devices for each in device.holders or ()), _WIDE)
