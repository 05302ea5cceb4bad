"""Run `podgpu top`: live in a terminal, or print a table once."""

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
from podgpu.cli.top.columns import heading, needed
from podgpu.cli.top.poller import Poller, fetch_status
from podgpu.cli.top.ui_state import State
from podgpu.cli.top.view import components, table

_EXIT_FAILED: Final = 1
_EXIT_INVALID: Final = 2

_DEFAULT_WIDTH: Final = 140
"""Width of the output if there is no terminal."""


def top(arguments: argparse.Namespace) -> int:
    """`podgpu top`: show the status live, or once."""
    live = not arguments.once and is_terminal(out()) and is_terminal(sys.stdin)
    try:
        query = partial(fetch_status, access=access_of(arguments, os.environ))
        status = query(arguments.url)
        if not live:
            text = "\n".join(plain(status, _width(status)))
            return 0 if put(text, "podgpu top: the table") else EXIT_UNWRITTEN
        # Imported only if it is needed.
        from podgpu.cli.top.screen import show

        show(Poller(arguments.url, float(arguments.interval), SystemClock(), status, query))
    except ComponentError as error:
        complain(terminal_safe(f"podgpu: {error}"))
        return _EXIT_INVALID if isinstance(error, PermanentError) else _EXIT_FAILED
    return 0


def plain(status: StatusDocument, width: int) -> list[str]:
    """Return the whole status as lines of text."""
    state = State(whole=True)
    lines = [f"{status.node}: {summary(status)}, {status.time:%Y-%m-%d %H:%M:%S} UTC"]
    lines += [f"! {problem}" for problem in problems(status)]
    lines += ["", heading(width), *(line.text for line in table(status, state, width)), ""]
    lines += components(status, width)
    return [terminal_safe(line).rstrip() for line in lines]


def _width(status: StatusDocument) -> int:
    """Return the terminal's width; without a terminal, one at which every name fits on a line."""
    if is_terminal(out()):
        return get_terminal_size((_DEFAULT_WIDTH, 0)).columns
    devices = [device for gpu in status.gpus or () for device in (gpu, *gpu.instances)]
    return needed((each for device in devices for each in device.holders or ()), _DEFAULT_WIDTH)
