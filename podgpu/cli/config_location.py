"""Find and load the configuration of a command."""

import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from config.loader import load, parse
from config.schema import Config
from pipeline.component.registry import RegisteredKinds

PLACES = (Path("podgpu.yaml"), Path("/etc/podgpu/config.yaml"))
"""Where a configuration file is searched if none is named. The first that exists is used."""


def located(named: Path | None) -> tuple[Config, Path | None]:
    """Load the configuration. If no file is named, print on stderr which one is used.

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
