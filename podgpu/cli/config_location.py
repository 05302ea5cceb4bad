"""Which configuration a command works with."""

import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from config.loader import load, parse
from config.schema import Config
from pipeline.component.registry import RegisteredKinds

PLACES = (Path("podgpu.yaml"), Path("/etc/podgpu/config.yaml"))
"""Where a file is looked for when none is named; the first that exists is taken."""


def located(named: Path | None) -> tuple[Config, Path | None]:
    """Read the configuration; say on stderr which it is, unless it was named.

    Returns:
        The configuration and its file; None for the built-in one.

    Raises:
        ConfigError: the file can't be read or is wrong.
    """
    path = named or next((place for place in PLACES if place.exists()), None)
    if path is None:
        print(
            f"podgpu: no configuration file ({' or '.join(map(str, PLACES))}): "
            "using the built-in one, this machine's GPUs on :9400",
            file=sys.stderr,
        )
        return built_in("default.yaml", os.environ), None
    if named is None:
        print(f"podgpu: using {path}", file=sys.stderr)
    return load(path, RegisteredKinds(), env=os.environ), path


def built_in(name: str, env: Mapping[str, str]) -> Config:
    """Read one of the configurations that are shipped with podgpu."""
    text = files("config").joinpath(name).read_text(encoding="utf-8")
    return parse(text, RegisteredKinds(), env=env, origin=f"<built-in {name}>")
