"""Run `podgpu demo`: the daemon on the built-in recording, with a ledger of sample data."""

import argparse
import asyncio
import errno
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from config.schema import Config
from config.value_types import ListenAddress
from pipeline.base.errors import PermanentError
from pipeline.base.logs import set_up
from pipeline.diagnostics.context import Roots
from pipeline.diagnostics.process_lookup import Daemon, environment, running_daemons
from pipeline.host.listen_sockets import bind
from podgpu.cli.config_commands import PLACES, built_in, serve
from podgpu.cli.demo.ledger_place import (
    DEFAULT_PORT,
    DemoLedgerError,
    existing,
    place,
    write_in_child,
)

PROC: Final = Roots().proc

DEMO: Final = "demo"
"""The command."""

WHAT: Final = (
    "this is a demo: it plays a recording of GPUs and pods, in a loop, and reads no GPU of this "
    "machine; GPUs whose model name ends in (simulated) are not real"
)
"""The first line of the demo's log."""

LISTEN: Final = "PODGPU_LISTEN"
"""Environment variable with the address on which the demo listens."""

_LEDGER: Final = "PODGPU_DEMO_LEDGER"
"""Environment variable with the path of the ledger, set by the demo for its configuration."""

_SINK: Final = "usage"
"""Name of the ledger's sink in the configuration."""


def demo(arguments: argparse.Namespace) -> int:
    """`podgpu demo`: write the sample data, then run the daemon until a signal.

    Raises:
        PermanentError: another program uses the port.
    """
    env = dict(os.environ)
    if arguments.listen:
        env[LISTEN] = str(arguments.listen)
    config = demo_config(env, has_ledger=True)
    listen: ListenAddress = cast("Any", config.sinks["metrics"].options).listen
    port = port_of(env)
    _check_port(listen, port)
    log = set_up(config.log.level, config.log.format)
    log.info("%s", WHAT)
    problem, path = "", None
    # SIGTERM has to end the child as well.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        path = place(port, env)
        log.info("writing four weeks of sample usage, not measured, to %s", path)
        write_in_child(path, lambda text: log.info("%s", text))
        env[_LEDGER] = str(path)
    except DemoLedgerError as error:
        problem, path = str(error), None
    finally:
        signal.signal(signal.SIGTERM, before)
    config = demo_config(env, has_ledger=not problem)
    return serve(config, None, messages(port, problem, _ledger_option(path)))


def _check_port(listen: ListenAddress, port: str) -> None:
    """Check that the demo can listen, before it does anything else.

    Raises:
        PermanentError: the port is in use; the text says by which demo.
    """
    try:
        asyncio.run(bind(listen)).close()
    except (OSError, UnicodeError) as error:
        if not isinstance(error, OSError) or error.errno != errno.EADDRINUSE:
            return  # the daemon reports it
        others = [each for each in running_daemons(PROC) if each.command == DEMO]
        other = next((each for each in others if port_of(_env_of(each)) == port), None)
        owner = (
            f"a podgpu demo (process {other.pid}) serves http://localhost:{port}/"
            if other
            else "another program uses the port"
        )
        fix = f"choose another port: podgpu demo --listen :{(int(port) + 1) % 65536 or 9401}"
        raise PermanentError(f"listen {listen}: {owner}; {fix}") from error


def _ledger_option(path: Path | None) -> str:
    """Return the option with which `podgpu usage` finds the ledger; empty if it needs none."""
    others = [each for each in running_daemons(PROC) if each.pid != os.getpid()]
    is_found = not others and not any(each.exists() for each in PLACES)
    return "" if is_found or path is None else f" --ledger {shlex.quote(str(path))}"


def _env_of(daemon: Daemon) -> dict[str, str]:
    """Return the environment of a running demo, in which its options are variables."""
    return _with_options(daemon.options, environment(daemon.pid, PROC) or {})


def port_of(env: Mapping[str, str]) -> str:
    """Return the port on which the demo listens."""
    return env.get(LISTEN, f":{DEFAULT_PORT}").rpartition(":")[2]


def demo_config(env: Mapping[str, str], *, has_ledger: bool) -> Config:
    """Return the configuration of the demo.

    Args:
        env: the environment variables.
        has_ledger: whether the demo has a ledger.
    """
    config = built_in("demo.yaml", env)
    if has_ledger:
        return config
    sinks = {name: sink for name, sink in config.sinks.items() if name != _SINK}
    return msgspec.structs.replace(config, sinks=sinks)


def running_config(options: Sequence[str], env: Mapping[str, str]) -> Config:
    """Return the configuration of a demo that runs on this machine.

    Args:
        options: its command-line options.
        env: the environment variables.
    """
    own = _with_options(options, env)
    path = existing(port_of(own), own)
    if path is not None:
        own[_LEDGER] = str(path)
    return demo_config(own, has_ledger=path is not None)


def _with_options(options: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--listen")
    try:
        listen = parser.parse_known_args(options)[0].listen
    except argparse.ArgumentError:  # the words of any process that looks like a demo
        listen = None
    return dict(env) | ({LISTEN: listen} if listen else {})


def messages(port: str, problem: str = "", ledger: str = "") -> list[tuple[int, str]]:
    """Return what the demo logs when it starts: what to open and to type next.

    Args:
        port: the port of the page.
        problem: why the demo has no ledger; empty if it has one.
        ledger: the option with which `podgpu usage` finds the ledger; empty if it needs none.
    """
    page = f"http://localhost:{port}"
    url = "" if port == DEFAULT_PORT else f" --url {page}"
    usage = logging.INFO, f"usage of four weeks, in another terminal: podgpu usage{ledger}"
    if problem:
        text = f"the demo has no ledger, so podgpu usage has no data: {problem}"
        usage = logging.WARNING, text
    return [
        (logging.INFO, f"open {page}/ in a browser"),
        (logging.INFO, f"live view, in another terminal: podgpu top{url}"),
        usage,
        (logging.INFO, f"metrics: curl -s {page}/metrics"),
    ]
