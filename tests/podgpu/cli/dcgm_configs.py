"""The configuration that results from options of dcgm-exporter, and the text that is printed."""

from collections.abc import Mapping
from typing import Any

import yaml

from config.loader import parse
from config.schema import Config
from pipeline.component.registry import RegisteredKinds
from podgpu.cli.dcgm_exporter.command import EffectiveConfig, effective_config
from podgpu.cli.dcgm_exporter.go_arguments import read


def config_of(*words: str, **env: str) -> EffectiveConfig:
    return effective_config(read(words), env)


def parsed(found: EffectiveConfig, env: Mapping[str, str]) -> Config:
    return parse(found.text, RegisteredKinds(), env=env, origin="printed.yaml")


def value_at(text: str, place: str) -> Any:
    """Return the value at a dotted path of a printed configuration; None if there is none."""
    value = yaml.safe_load(text)
    for step in place.split("."):
        if step not in value:
            return None
        value = value[step]
    return value
