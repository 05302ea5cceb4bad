"""A larger archive from that of a simulated fleet: copies of its nodes, in compacted objects.

A copy has other names, ids and amounts, so that the objects compress as those of other nodes would.
The amounts of a copy are a few thousandths lower, so those of a device are not exact sums.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline.archive.database import open_database
from pipeline.archive.object_contents import contents_of_raw, encode_contents
from pipeline.archive.object_key import CompactedKey, RawKey, parse
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.parquet_file import ORDER, read_query, write_query

_MEMORY_MB: Final = 1500


def copy_nodes(source: Path, target: Path, nodes: int, copies: int, scratch: Path) -> int:
    """Write compacted objects with the nodes of an archive and copies of them.

    Args:
        source: folder of an archive with raw objects only.
        target: folder of the new archive.
        nodes: number of nodes of the source.
        copies: how often each node is in the new archive.
        scratch: existing folder for temporary files.

    Returns:
        The number of objects.
    """
    days: dict[tuple[str, str], list[RawKey]] = {}
    for text in ObjectStore(str(source)).keys("v1/nodes"):
        key = parse(text)
        assert isinstance(key, RawKey)
        days.setdefault((key.cluster, str(key.day)), []).append(key)
    for (cluster, _), keys in sorted(days.items()):
        paths = [source / str(key) for key in keys]
        parts = [_copy_query(paths, nodes, number) for number in range(copies)]
        made = [str(_copied(key, nodes, number)) for key in keys for number in range(copies)]
        contents = contents_of_raw(made)
        file = target / str(CompactedKey.of(cluster, keys[0].day, contents.replaces))
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_database(scratch, memory_mb=_MEMORY_MB) as database:
            query = f"{' UNION ALL BY NAME '.join(parts)} ORDER BY {ORDER}"
            write_query(database, query, file, encode_contents(contents))
    return len(days)


def _copied(key: RawKey, nodes: int, number: int) -> RawKey:
    if not number:
        return key
    ledger = hashlib.md5(f"{key.ledger}{number}".encode(), usedforsecurity=False).hexdigest()[:16]
    node = f"gpu-{int(key.node.removeprefix('gpu-')) + nodes * number:04}"
    return replace(key, node=node, ledger=ledger)


def _copy_query(paths: list[Path], nodes: int, number: int) -> str:
    """Return the query of the rows of the nodes' copies with this number; 0 is the nodes."""
    rows = read_query(paths)
    if not number:
        return f"SELECT * FROM ({rows})"  # noqa: S608
    less = [
        f"{name} - {name} * {number} // 1000 AS {name}"
        for name in ("held_ns", "busy_ns", "energy_mj", "counted_ns")
    ]
    return f"""
        SELECT * REPLACE (
            printf('gpu-%04d', CAST(node[5:] AS INTEGER) + {nodes * number}) AS node,
            md5(ledger || '{number}')[:16] AS ledger,
            device[:4] || CAST(CAST(md5(device || '{number}') AS UUID) AS VARCHAR) AS device,
            gpu[:4] || CAST(CAST(md5(gpu || '{number}') AS UUID) AS VARCHAR) AS gpu,
            CAST(CAST(md5(pod_uid || '{number}') AS UUID) AS VARCHAR) AS pod_uid,
            pod[:-6] || md5(pod_uid || '{number}')[:5] AS pod,
            md5(holding || '{number}')[:16] AS holding,
            md5(gap || '{number}')[:16] AS gap,
            start_ns + {number * 1_234_567_891} AS start_ns,
            end_ns + {number * 1_234_567_891} AS end_ns,
            {", ".join(less)}
        ) FROM ({rows})
    """  # noqa: S608
