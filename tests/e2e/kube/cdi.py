"""Container Device Interface: names for devices, and what a container with such a one gets.

There is no hardware: a container that is given a device finds a variable in its environment.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.kube import folders


def write(kind: str, names: Iterable[str]) -> None:
    """Describe all devices of a kind, which is `vendor/class`. The variables are CDI_0, CDI_1..."""
    devices = [
        {"name": name, "containerEdits": {"env": [f"CDI_{at}={name}"]}}
        for at, name in enumerate(names)
    ]
    new = _file(kind).with_suffix(".new")
    new.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": devices}))
    new.replace(_file(kind))


def remove(kind: str) -> None:
    _file(kind).unlink(missing_ok=True)


def qualified(kind: str, name: str) -> str:
    return f"{kind}={name}"


def _file(kind: str) -> Path:
    return folders.CDI / f"{kind.replace('/', '-')}.json"
