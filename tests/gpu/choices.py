"""Check the choice of free GPUs while pods hold GPUs, in each way that makes a difference."""

import json
import time
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from pipeline.model.bitmask import bits, mask_of
from pipeline.model.topology_tree import Topology
from pipeline.topology.choice_ranking import Worth, link_score, worth
from pipeline.topology.document import restored
from tests.gpu.daemon import Daemon
from tests.pipeline.topology.exhaustive_search import exhaustive

COUNTS = (1, 2, 4, 8)
"""Numbers of GPUs that are requested."""


def kinds_of_taken(topology: Topology, count: int) -> list[tuple[int, ...]]:
    """Return sets of taken GPUs, one of each kind.

    Two sets are of one kind if an exchange of GPUs that changes nothing for the choice makes one
    the other.

    Args:
        topology: the topology of the node.
        count: the number of taken GPUs.
    """
    worths = worth(topology, topology.mask, link_score)
    kinds: list[tuple[int, ...]] = []
    for taken in combinations(range(len(topology.cards)), count):
        if not any(_exchangeable(worths, set(one), set(taken)) for one in kinds):
            kinds.append(taken)
    return kinds


def _exchangeable(worths: Worth, one: set[int], other: set[int]) -> bool:
    count = len(worths.cards)
    to: list[int] = []

    def extended() -> bool:
        place = len(to)
        if place == count:
            return True
        for new in range(count):
            if new in to or (place in one) != (new in other):
                continue
            if worths.card[place] != worths.card[new]:
                continue
            if all(worths.pair[place][i] == worths.pair[new][to[i]] for i in range(place)):
                to.append(new)
                if extended():
                    return True
                to.pop()
        return False

    return extended()


def choices(daemon: Daemon, gpus: int) -> dict[str, Any]:
    """Let pods take half of the GPUs in each kind of way, and compare each choice with all others.

    Args:
        daemon: a podgpu that reads this machine's GPUs.
        gpus: the number of GPUs.
    """
    topology, _ = restored(wait_free(daemon, (1 << gpus) - 1))
    uuids = [card.uuid for card in topology.cards]
    kinds = kinds_of_taken(topology, len(uuids) // 2)
    faults: list[str] = []
    slowest = 0.0
    compared = 0
    for taken in kinds:
        daemon.hold({f"train-{number}": [uuids[number]] for number in taken})
        free = topology.mask & ~mask_of(taken)
        wait_free(daemon, free)
        for n in _counts(free.bit_count()):
            began = time.perf_counter()
            status, text = daemon.get(f"/topology/best?n={n}")
            slowest = max(slowest, time.perf_counter() - began)
            best = exhaustive(topology, free, n, 0, link_score)
            found = int(json.loads(text)["mask"], 16) if status == 200 else None
            compared += 1
            if found != best:
                faults.append(
                    f"{taken} taken, {n} requested: {text}, but {list(bits(best))} wanted"
                )
    daemon.hold({})
    wait_free(daemon, topology.mask)
    return {
        "taken": [list(taken) for taken in kinds],
        "choices": compared,
        "slowest_ms": round(1e3 * slowest, 1),
        "faults": faults,
    }


def wait_free(daemon: Daemon, free: int, seconds: float = 10) -> dict[str, Any]:
    """Wait until exactly these GPUs are free, and return the topology document.

    Args:
        daemon: a podgpu that reads this machine's GPUs.
        free: mask of the GPUs.
        seconds: time limit.

    Raises:
        RuntimeError: others are free at the end of the time limit.
    """
    end = time.monotonic() + seconds
    while True:
        status, text = daemon.get("/topology")
        document: dict[str, Any] = json.loads(text) if status == 200 else {}
        if document.get("free") == f"{free:x}":
            return document
        if time.monotonic() > end:
            raise RuntimeError(f"{free:x} should be free after {seconds:g} s: {text[:2000]}")
        time.sleep(0.02)


def _counts(free: int) -> Sequence[int]:
    return [n for n in COUNTS if n <= free]


def best_of_all(shown: Iterable[tuple[int, Sequence[int]]], topology: Topology) -> list[str]:
    """Return the faults of choices among all GPUs.

    Args:
        shown: numbers of requested GPUs, and the chosen ones.
        topology: the topology of the node.
    """
    faults = []
    for n, chosen in shown:
        best = list(bits(exhaustive(topology, topology.mask, n, 0, link_score)))
        if list(chosen) != best:
            faults.append(f"best of {n} is {chosen}, but {best} wanted")
    return faults
