"""Options to create each registered component: `options` of the module `contract` of its tests."""

import importlib
from pathlib import Path
from typing import cast

import msgspec

from pipeline.component.kind import Role


def options_of(role: Role, kind: str, folder: Path) -> msgspec.Struct:
    """Return options with which a component of a kind works in a test.

    Args:
        role: source or sink.
        kind: the name in the registry.
        folder: for its files and sockets.
    """
    module = importlib.import_module(f"tests.{role}s.{kind}.contract")
    return cast("msgspec.Struct", module.options(folder))
