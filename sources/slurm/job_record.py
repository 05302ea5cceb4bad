"""Reads the answers of scontrol: jobs, nodes and the configuration.

A user chooses the name, comment and paths of a job, and can write text into them that looks like
other keys, or like another job. scontrol writes the name before all keys that are read here, and
the other texts of the user after them, from the key Command on. So only what is between them
counts. Where the name ends is certain if no text looks like the key after it, or if the name is
known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MAX_GPU: Final = 1024
"""Slurm's numbers of GPUs are below this limit."""

_PARTS: Final = {
    "user": re.compile(r" UserId=(.*?)\([0-9]+\) GroupId="),
    # Slurm writes accounts in lower case, so none looks like a key.
    "account": re.compile(r" Account=(.*?) QOS="),
    "state": re.compile(r" JobState=([A-Z_]+) "),
    "partition": re.compile(r" Partition=([^ ]+) AllocNode"),
    "started": re.compile(r" StartTime=([0-9T:-]+) EndTime="),
}
_RECORD: Final = re.compile(r"^JobId=", re.MULTILINE)
_USER: Final = " UserId="
_AFTER_NAME: Final = re.compile(f"(?={_USER})")
_AFTER_HET_NAME: Final = re.compile(f" HetJobIdSet=[0-9,-]+(?={_USER})")
"""What follows the name, also of a part of a heterogeneous job."""
_TEXTS: Final = " MinCPUsNode="
"""The key that follows the allocations. After it come texts that the user chooses."""
_ALLOCATIONS: Final = " Socks/Node="
"""The last key before the allocations."""
_CLIENT: Final = re.compile(r" AllocNode:Sid=\S* ReqNodeList=")
_KEY: Final = re.compile(r" WCKey=\S* JobState=")
"""Texts of the user before the allocations: the host of the client, and the workload key. A space
in them could be the start of any key."""
_ALLOCATION: Final = re.compile(r" Nodes=([^ ]+) CPU_IDs=[^ ]* Mem=[^ ]* GRES=([^ ]*)")
_GRES: Final = re.compile(r"([a-z]+)(?::[^:(),]+)?:([0-9]+)(?:[KMGTP])?\(IDX:([0-9,-]+)\)")
_KINDS: Final = frozenset({"gpu", "shard", "mps"})
_EMPTY: Final = frozenset({"(null)", "N/A", "Unknown", "None"})
_WAITING: Final = "PENDING"
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
        unread: allocations of GPUs that podgpu cannot read, or that are on no node of this name.
        started_s: when it started, in Unix seconds; None if it waits, also to run again.
    """

    user: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    started_s: int | None = None
    shares: tuple[Share, ...] = ()
    unread: tuple[str, ...] = ()


def is_certain(text: str) -> bool:
    """Return whether an answer has one job, and no text that looks like the key after its name."""
    return len(_RECORD.findall(text)) == 1 and text.count(_USER) == 1


def place(text: str, job: str) -> str:
    """Return the place of a job, such as `4_7`; empty if it is missing.

    Args:
        text: the answer to `squeue --format "%A %i"`, which has no text of a user.
        job: its id.
    """
    found = re.search(rf"^{job} ([0-9_+]+)$", text, re.MULTILINE)
    return found[1] if found else ""


def job_record(text: str, job: str, node: str, name: str | None = None) -> JobRecord | None:
    """Read the answer to `scontrol --oneliner --details show job ID`, in UTC.

    Args:
        text: the answer, about one job; `is_certain` unless its name is known.
        job: id of the job.
        node: Slurm's name of this node.
        name: the name of the job, if it is known.

    Returns:
        None if the answer is not about the job.
    """
    start = re.search(rf"^JobId={job} ", text, re.MULTILINE)
    first, key, rest = text[start.end() - 1 :].partition(" JobName=") if start else ("", "", "")
    if not key or not rest.startswith(name or ""):
        return None
    after = _AFTER_HET_NAME if " HetJobId=" in first else _AFTER_NAME
    end = after.search(rest) if name is None else after.match(rest, len(name))
    if end is None:
        return None
    name = rest[: end.start()]
    # Texts of the user follow, and what may look like another job.
    line = rest[end.end() :].partition(_TEXTS)[0].partition("\n")[0] + " "
    whole = rest[end.end() :].partition(" Command=")[0]
    for plain in (_CLIENT, _KEY):
        first, _, last = plain.pattern.partition("\\S*")
        if first in whole and (not plain.search(whole) or whole.count(last) > 1):
            return None
    values = {key: found[1] for key, one in _PARTS.items() if (found := one.search(line))}
    known = {key: text[:_MAX_TEXT] for key, text in values.items() if text not in _EMPTY}
    allocated = _ALLOCATION.findall(line.rpartition(_ALLOCATIONS)[2])
    here = [gres for nodes, gres in allocated if contains(nodes, node)]
    shares, unread = _shares(",".join(here))
    if allocated and not here:
        # It runs here, so Slurm calls this node otherwise.
        unread = tuple(
            f"{nodes}:{gres}"[:_MAX_TEXT] for nodes, gres in allocated if any(_shares(gres))
        )
    waits = values.get("state") == _WAITING
    return JobRecord(
        known.get("user", ""),
        known.get("account", ""),
        known.get("partition", ""),
        "" if name in _EMPTY else name[:_MAX_TEXT],
        None if waits else _seconds(known.get("started", "")),
        shares,
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


def contains(nodes: str, node: str) -> bool:
    """Return whether a list of nodes such as `login,gpu[01-03,7]-ib` contains a node."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        # Text and numbers in turn.
        pieces = re.split(r"\[([^\]]*)\]", part)
        pattern = "([0-9]+)".join(map(re.escape, pieces[::2]))
        found = re.fullmatch(pattern, node)
        if found and all(map(_in_ranges, found.groups(), pieces[1::2])):
            return True
    return False


def _in_ranges(number: str, ranges: str) -> bool:
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            continue
        # `[8-10]` has 8, 9 and 10; `[08-10]` has 08.
        width = len(first) if first.startswith("0") else 1
        if len(number) < width or (number.startswith("0") and len(number) != width):
            continue
        if int(first) <= int(number) <= int(last or first):
            return True
    return False


def _seconds(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
