"""The index of each GPU, as keys of the table `meta`: one key for each index.

Each index belongs to one GPU. The index of a GPU that another one replaced is thus no longer known.
"""

import sqlite3
from typing import Final

_KEY: Final = "gpu_index:"
"""Start of the keys. The index follows. The value is the UUID of the GPU."""


def write_gpu_index(connection: sqlite3.Connection, gpu: str, index: int) -> None:
    """Store the index of a GPU.

    Args:
        connection: the writer's connection.
        gpu: UUID of the physical GPU.
        index: NVML's index of the GPU.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    run = connection.execute
    run("DELETE FROM meta WHERE key GLOB ? AND value = ?", (f"{_KEY}*", gpu))
    run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{_KEY}{index}", gpu))


def read_gpu_indexes(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the index of each GPU by UUID; files of earlier versions have none.

    Raises:
        sqlite3.Error: the file cannot be read.
        ValueError: a key has no valid index.
    """
    rows = connection.execute("SELECT key, value FROM meta WHERE key GLOB ?", (f"{_KEY}*",))
    return {str(gpu): int(str(key).removeprefix(_KEY)) for key, gpu in rows}
