"""What a command line of dcgm-exporter comes to, and what is printed of it."""

from collections.abc import Mapping
from typing import Any

import yaml

from config.loader import parse
from config.schema import Config
from pipeline.component.registry import RegisteredKinds
from podgpu.cli.dcgm_exporter.command import EffectiveConfig, effective_config
from podgpu.cli.dcgm_exporter.go_arguments import read


def meaning(*words: str, **env: str) -> EffectiveConfig:
    return effective_config(read(words), env)


def again(found: EffectiveConfig, env: Mapping[str, str]) -> Config:
    return parse(found.text, RegisteredKinds(), env=env, origin="printed.yaml")


def at(text: str, place: str) -> Any:
    """The value at a place of a printed configuration; None where there is none."""
    value = yaml.safe_load(text)
    for step in place.split("."):
        if step not in value:
            return None
        value = value[step]
    return value
