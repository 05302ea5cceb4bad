"""Reads the answers of scontrol: jobs, nodes and the configuration.

A user chooses the name, comment and paths of a job, and can write text into them that looks like
another key. So a key counts only if it occurs once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MAX_GPU: Final = 1024
"""Slurm's numbers of GPUs are below this limit."""

_PARTS: Final = {
    "name": r" JobName=(.*?) UserId=",
    "user": r" UserId=([^ ()]+)\([0-9]+\) ",
    "account": r" Account=([^ ]+) QOS=",
    "partition": r" Partition=([^ ]+) AllocNode",
    "started": r" StartTime=([0-9T:-]+) EndTime=",
}
_RECORD: Final = re.compile(r"^JobId=", re.MULTILINE)
_ALLOCATION: Final = re.compile(r" Nodes=([^ ]+) CPU_IDs=[^ ]* Mem=[^ ]* GRES=([^ ]*)")
_GRES: Final = re.compile(r"([a-z]+)(?::[^:(),]+)?:([0-9]+)(?:[KMGTP])?\(IDX:([0-9,-]+)\)")
_KINDS: Final = frozenset({"gpu", "shard", "mps"})
_EMPTY: Final = frozenset({"(null)", "N/A", "Unknown", "None"})
_MAX_TEXT: Final = 256


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs that a job was allocated, and the part of each.

    Attributes:
        kind: `gpu`, `shard` or `mps`.
        count: number of whole GPUs, or of shards of the GPUs together.
        gpus: Slurm's numbers of the GPUs.
    """

    kind: str
    count: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What Slurm knows of a job. A text is empty, and a value None, if it is unknown.

    Attributes:
        shares: what it was allocated on this node.
        unread: allocations of GPUs on this node whose form podgpu does not know.
        started_s: when it started, in Unix seconds.
        ambiguous: keys that occur more than once: a text of the user looks like a key.
    """

    user: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    started_s: int | None = None
    shares: tuple[Share, ...] = ()
    ambiguous: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def job_record(text: str, job: str, node: str) -> JobRecord:
    """Read the answer to `scontrol --oneliner --details show job ID`, in UTC.

    Args:
        text: the answer. For the first task of an array, it has all tasks.
        job: id of the job.
        node: Slurm's name of this node.
    """
    of_job = [record for record in _RECORD.split(text)[1:] if record.startswith(f"{job} ")]
    if len(of_job) != 1:
        return JobRecord(ambiguous=("JobId",) if of_job else ())
    line = f"{' '.join(of_job[0].splitlines())} "
    found: dict[str, str] = {}
    ambiguous: list[str] = []
    for key, pattern in _PARTS.items():
        values = re.findall(pattern, line)
        if len(values) > 1:
            ambiguous.append(key)
        elif values and values[0] not in _EMPTY:
            found[key] = values[0][:_MAX_TEXT]
    if "user" in ambiguous:  # where the name ends is unknown too
        found.pop("name", None)
    here = [gres for nodes, gres in _ALLOCATION.findall(line) if _contains(nodes, node)]
    if len(here) > 1:
        ambiguous.append("GRES")
    shares, unread = _shares(here[0]) if len(here) == 1 else ((), ())
    return JobRecord(
        found.get("user", ""),
        found.get("account", ""),
        found.get("partition", ""),
        found.get("name", ""),
        _seconds(found.get("started", "")),
        shares,
        tuple(ambiguous),
        unread,
    )


def setting(text: str, key: str) -> str:
    """Return a value of `scontrol show config` (`Key = value`); empty if it is missing or null."""
    found = re.search(rf"^{key}\s*= (.*)$", text, re.MULTILINE)
    return "" if found is None or found[1] in _EMPTY else found[1].strip()


def units_per_gpu(text: str) -> Mapping[str, int]:
    """Return how many shards, and units of MPS, each GPU of a node has.

    Args:
        text: the answer to `scontrol --oneliner show node NAME`, with `Gres=gpu:4,shard:16`.
    """
    found = re.search(r" Gres=([^ ]+)", text)
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", found[1] if found else "").split(","):
        kind, *_, count = part.split(":") if ":" in part else (part, "")
        if count.isdecimal():
            counts[kind] = counts.get(kind, 0) + int(count)
    gpus = counts.pop("gpu", 0)
    return {kind: count // gpus for kind, count in counts.items() if gpus and not count % gpus}


def _shares(gres: str) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """Return the parts of GPUs in an allocation, and the texts that could not be read."""
    shares: list[Share] = []
    unread: list[str] = []
    # A comma inside of parentheses separates numbers of GPUs.
    for part in re.findall(r"(?:[^,(]|\([^)]*\)?)+", gres):
        if part.partition(":")[0] not in _KINDS:
            continue
        found = _GRES.fullmatch(part)
        gpus = _numbers(found[3]) if found else ()
        if found and gpus:
            shares.append(Share(found[1], int(found[2]), gpus))
        else:
            unread.append(part[:_MAX_TEXT])
    return tuple(shares), tuple(unread)


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as `0-2,5`; empty if it is invalid."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        if not int(first) <= int(last or first) < MAX_GPU:
            return ()
        numbers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(numbers))


def _contains(nodes: str, node: str) -> bool:
    """Whether a list of nodes such as `login,gpu[01-03,7]` contains a node."""
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", nodes):
        prefix, _, ranges = part.rstrip("]").partition("[")
        if not ranges:
            if prefix == node:
                return True
            continue
        number = node.removeprefix(prefix)
        if number == node or not number.isdecimal():
            continue
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            if not first.isdecimal() or not (last or first).isdecimal():
                continue
            if len(number) == len(first) and int(first) <= int(number) <= int(last or first):
                return True
    return False


def _seconds(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
