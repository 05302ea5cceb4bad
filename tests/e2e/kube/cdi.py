"""Container Device Interface: write specs for simulated devices.

There is no hardware: a container with a device gets an environment variable.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.kube import folders


def write(kind: str, names: Iterable[str]) -> None:
    """Write the spec of a kind (`vendor/class`); its variables are CDI_0, CDI_1, ......"""
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
