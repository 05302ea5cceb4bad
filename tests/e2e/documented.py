"""Manifests from the documentation. Tests use exactly the text that users copy."""

import re
from pathlib import Path

import yaml

from tests.e2e.kube.api import Object

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def objects(page: str, kind: str) -> list[Object]:
    """Return the objects of a kind in a page, also from blocks with other objects.

    Args:
        page: path of the page below `docs`.
        kind: such as `ClusterRole`.
    """
    return [
        found
        for block in _BLOCK.findall((_DOCS / page).read_text())
        if f"kind: {kind}\n" in block
        for found in yaml.safe_load_all(block)
        if isinstance(found, dict) and found.get("kind") == kind
    ]


def rules(page: str) -> list[Object]:
    """Return the rules of the only ClusterRole in a page."""
    (role,) = objects(page, "ClusterRole")
    found: list[Object] = role["rules"]
    return found


def extender(page: str) -> Object:
    """Return the only extender of the only scheduler configuration in a page."""
    (configuration,) = objects(page, "KubeSchedulerConfiguration")
    (found,) = configuration["extenders"]
    made: Object = found
    return made
