"""Run `podgpu demo`: the daemon on the built-in recording, with a ledger of sample data."""

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from config.schema import Config
from podgpu.cli.config_commands import built_in, serve
from podgpu.cli.demo.ledger_place import (
    DEFAULT_PORT,
    DemoLedgerError,
    existing,
    place,
    write_in_child,
)

LISTEN: Final = "PODGPU_LISTEN"
"""Environment variable with the address on which the demo listens."""

_LEDGER: Final = "PODGPU_DEMO_LEDGER"
"""Environment variable with the path of the ledger, set by the demo for its configuration."""

_SINK: Final = "usage"
"""Name of the ledger's sink in the configuration."""


def demo(arguments: argparse.Namespace) -> int:
    """`podgpu demo`: write the sample data, then run the daemon until a signal."""
    env = dict(os.environ)
    if arguments.listen:
        env[LISTEN] = str(arguments.listen)
    port = port_of(env)
    problem = ""
    try:
        path = place(port, env)
        write_in_child(path)
    except DemoLedgerError as error:
        problem = str(error)
    else:
        env[_LEDGER] = str(path)
    config = demo_config(env, has_ledger=not problem)
    return serve(config, None, messages(port, problem))


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
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--listen")
    known, _ = parser.parse_known_args(options)
    own = dict(env) | ({LISTEN: known.listen} if known.listen else {})
    path = existing(port_of(own), own)
    if path is not None:
        own[_LEDGER] = str(path)
    return demo_config(own, has_ledger=path is not None)


def messages(port: str, problem: str = "") -> list[tuple[int, str]]:
    """Return what the demo logs first: what it shows, and what to open and to type next.

    Args:
        port: the port of the page.
        problem: why the demo has no ledger; empty if it has one.
    """
    page = f"http://localhost:{port}"
    url = "" if port == DEFAULT_PORT else f" --url {page}"
    what = (
        "this is a demo: it plays a recording of GPUs and pods, in a loop, and reads no GPU of "
        "this machine; GPUs whose model name ends in (simulated) are not real"
    )
    found = [
        (logging.INFO, what),
        (logging.INFO, f"open {page}/ in a browser"),
        (logging.INFO, f"live view, in another terminal: podgpu top{url}"),
        (logging.INFO, "four weeks of sample usage, not measured: podgpu usage"),
        (logging.INFO, f"metrics: curl -s {page}/metrics"),
    ]
    if problem:
        text = f"the demo has no ledger, so podgpu usage has no data: {problem}"
        found[3] = logging.WARNING, text
    return found
