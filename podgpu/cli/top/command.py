"""Run `podgpu top`: query a daemon, and show its status live in a terminal, or once."""

import argparse
import os
import sys
from functools import partial
from shutil import get_terminal_size
from typing import Final

import msgspec

from pipeline.base.clock import SystemClock
from pipeline.base.errors import PermanentError, TransientError
from pipeline.status_page.display_text import holder_name
from pipeline.status_page.problem_text import listed
from pipeline.status_page.status_document import VERSION, StatusDocument
from podgpu.cli import daemon_client
from podgpu.cli.client_options import NO_ACCESS_OPTIONS, Access, access_of
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, is_terminal, out, put
from podgpu.cli.terminal_text import width as wide
from podgpu.cli.top.component_lines import component_lines
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.poller import Poller
from podgpu.cli.top.problem_lines import problem_lines
from podgpu.cli.top.screen_frame import header
from podgpu.cli.top.styled_text import EMPTY, plain_text
from podgpu.cli.top.ui_state import State
from podgpu.cli.top.view import device_heading, device_lines

PATH: Final = "/status"
_DEFAULT_WIDTH: Final = 140
"""Width of the output if there is no terminal or the terminal's width is unknown."""


def top(arguments: argparse.Namespace) -> int:
    """`podgpu top`: show the status live, or print it once; return the exit status.

    Raises:
        ComponentError: the status cannot be read.
    """
    query = partial(fetch_status, access=access_of(arguments, os.environ))
    status = query(arguments.url)
    live = not arguments.once and is_terminal(out()) and is_terminal(sys.stdin)
    if live:
        # Imported only if it is needed.
        from podgpu.cli.top.screen import can_draw, show

        if can_draw():
            interval = float(arguments.interval)
            show(Poller(arguments.url, interval, SystemClock(), status, query))
            return 0
    text = "\n".join(plain(status, _width(status), graphs=is_terminal(out())))
    return 0 if put(text, "podgpu top: the table") else EXIT_UNWRITTEN


def plain(status: StatusDocument, width: int, *, graphs: bool = False) -> list[str]:
    """Return the whole status as lines of text, without styles.

    Args:
        status: the status document.
        width: width of the lines.
        graphs: whether the table has graphs.
    """
    lines = header(DaemonStatus(status), width)
    lines += problem_lines(listed(status), status.time, width, status.problems_left_out)
    lines += [EMPTY, *device_heading(status, width, graphs=graphs)]
    devices = device_lines(status, State(whole=True), width, graphs=graphs)
    lines += [*(each.line for each in devices), EMPTY, *component_lines(status, width)]
    return [plain_text(line).rstrip() for line in lines]


def _width(status: StatusDocument) -> int:
    """Return the terminal's width; without a terminal, a width at which no name is cut."""
    if is_terminal(out()):
        return get_terminal_size((_DEFAULT_WIDTH, 0)).columns
    devices = [device for gpu in status.gpus or () for device in (gpu, *gpu.instances)]
    names = (holder_name(each) for device in devices for each in device.holders or ())
    return _DEFAULT_WIDTH + max(map(wide, names), default=0)


class _Versioned(msgspec.Struct):
    version: int
    node: str


def fetch_status(url: str, access: Access = NO_ACCESS_OPTIONS) -> StatusDocument:
    """Return the status of a daemon.

    Args:
        url: address of the daemon.
        access: TLS and credentials.

    Raises:
        PermanentError: the address is invalid, a file of `access` cannot be used, or the server is
            not podgpu or is a newer podgpu.
        TransientError: there is no usable response now.
    """
    try:
        body = daemon_client.get(url, PATH, {}, access)
    except daemon_client.NotListeningError as error:
        raise TransientError(
            f"{error}; check that podgpu runs there, or give its address as --url"
        ) from error
    try:
        version = msgspec.json.decode(body, type=_Versioned).version
        if version > VERSION:
            raise PermanentError(
                f"{url}: the podgpu there is newer than this one; use its version of `podgpu top`"
            )
        return msgspec.json.decode(body, type=StatusDocument)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PermanentError(f"{url}{PATH}: the response is not from podgpu") from error
