"""A valid configuration for the tests of the command `podgpu doctor`."""

from pathlib import Path

from tests.podgpu.doctor.support import write

VALID = (
    "node: gpu-1\nsources: {r: {kind: replay, path: 'builtin:demo'}}\nsinks: {l: {kind: jsonl}}\n"
)


def valid_config(folder: Path, node: str = "gpu-1") -> str:
    return str(write(folder / "podgpu.yaml", VALID.replace("gpu-1", node)))
