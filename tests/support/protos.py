"""Compile each `NAME.proto` in podgpu's packages to `NAME.binpb` in the same folder.

`python -m tests.support.protos` writes the files.
"""

import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
SCHEMAS = sorted(
    path
    for package in ("config", "pipeline", "sources", "sinks")
    for path in (ROOT / package).rglob("*.proto")
)


def compiled(schema: Path) -> bytes:
    """Return the serialised `FileDescriptorSet`, without comments and source positions."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        status = protoc.main(
            [
                "protoc",
                f"--proto_path={schema.parent}",
                "--include_imports",
                f"--descriptor_set_out={out}",
                schema.name,
            ]
        )
        assert status == 0, f"{schema}: protoc ended with status {status}"
        return out.read_bytes()


if __name__ == "__main__":
    for schema in SCHEMAS:
        schema.with_suffix(".binpb").write_bytes(compiled(schema))
