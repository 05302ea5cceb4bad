"""The commands that use a configuration, and how they find the configuration file.

`run` and `record` run until a signal. `check`, `schema` and `kinds` print and exit.
"""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

import msgspec
import orjson

from config.errors import ConfigError, Problem
from config.json_schema import json_schema
from config.loader import load, parse
from config.message_text import did_you_mean
from config.option_docs import describe
from config.schema import Config, Http
from pipeline.base.errors import PermanentError
from pipeline.base.logs import set_up
from pipeline.base.version import VERSION
from pipeline.component.code_permissions import NOTHING, Allowed, refused
from pipeline.component.registry import KINDS, RegisteredKinds
from podgpu.cli.shared_options import allowed_of

PLACES = (Path("podgpu.yaml"), Path("/etc/podgpu/config.yaml"))
"""Where a configuration file is searched if none is given. The first one that exists is used."""


def located(named: Path | None) -> tuple[Config, Path | None]:
    """Load the configuration. If no file is given, print on stderr which one is used.

    Returns:
        The configuration and the path of its file; None for the built-in configuration.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    path = named or next((place for place in PLACES if place.exists()), None)
    if path is None:
        print(
            f"podgpu: no configuration file found ({' or '.join(map(str, PLACES))}): using the "
            "built-in configuration, which serves this machine's GPUs on :9400",
            file=sys.stderr,
        )
        return built_in("default.yaml", os.environ), None
    if named is None:
        print(f"podgpu: using {path}", file=sys.stderr)
    return load(path, RegisteredKinds(), env=os.environ), path


def built_in(name: str, env: Mapping[str, str]) -> Config:
    """Load one of the configurations that are shipped with podgpu."""
    text = files("config").joinpath(name).read_text(encoding="utf-8")
    return parse(text, RegisteredKinds(), env=env, origin=f"<built-in {name}>")


def run(arguments: argparse.Namespace) -> int:
    """`podgpu run`: run the daemon."""
    config, path = located(arguments.config)
    return serve(config, path, allowed=allowed_of(arguments))


def serve(
    config: Config,
    path: Path | None,
    first_messages: Iterable[tuple[int, str]] = (),
    allowed: Allowed = NOTHING,
) -> int:
    """Run the daemon until a signal and return its exit status.

    Args:
        config: the configuration.
        path: path of the configuration file, which is watched for changes; None if there is none.
        first_messages: messages to log first, each with its level of `logging`.
        allowed: code named in the configuration that may run.
    """
    # Imported here, because only the daemon needs it and other commands should start fast.
    from pipeline.host.memory_footprint import trim
    from pipeline.runtime import daemon
    from pipeline.runtime.runtime import Runtime
    from pipeline.runtime.signals import ignore_signals

    trim()
    log = set_up(config.log.level, config.log.format)
    for level, text in first_messages:
        log.log(level, "%s", text)

    async def main() -> int:
        runtime = Runtime(config, allowed=allowed)
        log.info(
            "starting: sources %s, sinks %s", ", ".join(config.sources), ", ".join(config.sinks)
        )
        try:
            return await daemon.run(runtime, path)
        finally:
            ignore_signals()

    return asyncio.run(main())


def record(arguments: argparse.Namespace) -> int:
    """`podgpu record`: write the events of all sources to a file, without sinks."""
    from pipeline.base.clock import SystemClock
    from pipeline.model import ClockTicked, Envelope, SourceAdded, SourceLost
    from pipeline.recording import Header, RecordingError, RecordingWriter
    from pipeline.runtime import daemon
    from pipeline.runtime.runtime import Runtime, node_name
    from pipeline.runtime.signals import ignore_signals

    config, _ = located(arguments.config)
    config = msgspec.structs.replace(config, sinks={}, http=Http())
    log = set_up(config.log.level, config.log.format)
    header = Header(VERSION, node_name(config), SystemClock().now())
    reports: Counter[str] = Counter()

    def count(envelope: Envelope) -> None:
        if not isinstance(envelope.event, ClockTicked | SourceAdded | SourceLost):
            reports[envelope.source] += 1

    async def main(writer: RecordingWriter) -> int:
        stop = asyncio.Event()
        if arguments.duration is not None:
            asyncio.get_running_loop().call_later(float(arguments.duration), stop.set)
        log.info("recording into %s; to stop, press Ctrl-C", arguments.output)
        runtime = Runtime(config, taps=(writer.write, count), allowed=allowed_of(arguments))
        try:
            return await daemon.run(runtime, None, stop=stop)
        finally:
            ignore_signals()

    status = 0
    try:
        with RecordingWriter(arguments.output, header, overwrite=arguments.force) as writer:
            status = asyncio.run(main(writer))
        counts = ", ".join(f"{number} of {name}" for name, number in reports.items())
        if counts:
            log.info("recorded into %s; events: %s", arguments.output, counts)
        else:
            log.warning("%s is empty: no source has reported", arguments.output)
    except* RecordingError as found:
        for text in daemon.texts(found):
            log.error("%s", text)
        status = daemon.EXIT_CONFIG
    return status


def check(arguments: argparse.Namespace) -> int:
    """`podgpu check`: print that the configuration is valid, and return 0.

    Raises:
        ConfigError: the configuration, or a file that it names, is invalid.
    """
    config, path = located(arguments.config)
    if found := refused(config, allowed_of(arguments)):
        raise ConfigError(str(path or "built-in"), found)
    _check_counters(config, str(path or "built-in"))
    if config.http.web_config is not None:
        # Imported only here, because it loads libraries for certificates and passwords.
        from pipeline.http.access import check as check_web

        check_web(config.http.web_config)
    sources, sinks = ", ".join(config.sources), ", ".join(config.sinks)
    print(f"{path or 'built-in'}: valid: sources {sources}; sinks {sinks}")
    option = f" -c {path}" if path is not None else ""
    print(f"podgpu doctor{option} checks whether this machine has what they need")
    return 0


def _check_counters(config: Config, origin: str) -> None:
    """Print a warning on stderr if rows of the counters file, or of `counters.rows`, are ignored.

    Raises:
        ConfigError: the file does not exist or cannot be read.
    """
    setting = config.counters
    if setting.file is None and not setting.rows:
        return
    from pipeline.counters.list_follower import DEFAULT_TEXT
    from pipeline.counters.list_source import (
        ListRows,
        ListUnavailableError,
        read_list,
        text_of_rows,
    )
    from pipeline.counters.plan_builder import planned, warning

    place, text = ListRows.place, text_of_rows(setting.rows)
    if setting.file is not None:
        place = str(setting.file)
        try:
            text = read_list(setting.file, orphan=True)
        except ListUnavailableError as error:
            raise ConfigError(origin, [Problem("counters.file", str(error))]) from error
    if message := warning(place, planned(text, setting), DEFAULT_TEXT):
        print(message, file=sys.stderr)


def schema(_: argparse.Namespace) -> int:
    """`podgpu schema`: print the JSON Schema of the configuration, for editors."""
    print(orjson.dumps(json_schema(RegisteredKinds()), option=orjson.OPT_INDENT_2).decode())
    return 0


def kinds(arguments: argparse.Namespace) -> int:
    """`podgpu kinds`: print the purpose and the options of kinds of sources and sinks.

    Raises:
        PermanentError: there is no kind with a given name.
    """
    names = {kind for _, kind in KINDS}
    for asked in arguments.names:
        if asked not in names:
            hint = did_you_mean(asked, names, f"the kinds are {', '.join(sorted(names))}")
            raise PermanentError(f"there is no such kind of source or sink; {hint}")
    for (role, kind), entry in KINDS.items():
        if arguments.names and kind not in arguments.names:
            continue
        print(f"{role} {kind}: {entry.summary}")
        for option in describe(RegisteredKinds().options(role, kind)):
            default = f" (default {option.default})" if option.default else ""
            print(f"    {option.name}: {option.type}{default}\n        {option.doc}")
    return 0
