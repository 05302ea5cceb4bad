"""What the tests of `podgpu doctor`'s command share."""

from pathlib import Path

from tests.podgpu.doctor.support import write

GOOD = (
    "node: gpu-1\nsources: {r: {kind: replay, path: 'builtin:demo'}}\nsinks: {l: {kind: jsonl}}\n"
)


def plain(folder: Path, node: str = "gpu-1") -> str:
    return str(write(folder / "podgpu.yaml", GOOD.replace("gpu-1", node)))
