"""The commands `check`, `schema` and `kinds`, which print and exit."""

import argparse
import sys

import orjson

from config.errors import ConfigError, Problem
from config.json_schema import json_schema
from config.option_docs import describe
from config.schema import Config
from pipeline.component.code_permissions import refused
from pipeline.component.registry import KINDS, RegisteredKinds
from podgpu.cli.config_location import located
from podgpu.cli.shared_options import allowed_of


def check(arguments: argparse.Namespace) -> int:
    """`podgpu check`: return 0 if the configuration is valid."""
    config, path = located(arguments.config)
    if found := refused(config, allowed_of(arguments)):
        raise ConfigError(str(path or "built-in"), found)
    _check_counters(config, str(path or "built-in"))
    if config.http.web_config is not None:
        # Imported only here, because it loads libraries for certificates and passwords.
        from pipeline.http.access import check as check_web

        check_web(config.http.web_config)
    sources, sinks = ", ".join(config.sources), ", ".join(config.sinks)
    print(f"{path or 'built-in'}: good: sources {sources}; sinks {sinks}")
    return 0


def _check_counters(config: Config, origin: str) -> None:
    """Print a warning on stderr about invalid rows of the counters file.

    Raises:
        ConfigError: the file does not exist or cannot be read.
    """
    setting = config.counters
    if setting.file is None:
        return
    from pipeline.counters.list_keeper import DEFAULT_TEXT
    from pipeline.counters.list_source import ListUnavailableError, read_list
    from pipeline.counters.plan_builder import planned, warning

    try:
        text = read_list(setting.file, orphan=True)
    except ListUnavailableError as error:
        raise ConfigError(origin, [Problem("counters.file", str(error))]) from error
    if message := warning(str(setting.file), planned(text, setting), DEFAULT_TEXT):
        print(message, file=sys.stderr)


def schema(_: argparse.Namespace) -> int:
    """`podgpu schema`: print the JSON Schema of the configuration, for editors."""
    print(orjson.dumps(json_schema(RegisteredKinds()), option=orjson.OPT_INDENT_2).decode())
    return 0


def kinds(_: argparse.Namespace) -> int:
    """`podgpu kinds`: print each kind of source and sink, its purpose and its options."""
    for (role, kind), entry in KINDS.items():
        print(f"{role} {kind}: {entry.summary}")
        for option in describe(RegisteredKinds().options(role, kind)):
            default = f" (default {option.default})" if option.default else ""
            print(f"    {option.name}: {option.type}{default}\n        {option.doc}")
    return 0
