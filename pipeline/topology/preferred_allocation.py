"""Which GPUs to take, asked in the words of people and programs: indexes and uuids in, JSON out."""

from typing import Any, Final, TypeAlias

from pipeline.model.availability import Availability
from pipeline.model.bitmask import mask_of
from pipeline.model.topology_tree import Topology
from pipeline.topology.selection import best

Answer: TypeAlias = dict[str, Any]

HOLDERS_UNKNOWN: Final = "no source tells who holds what, so held GPUs may be among them"

_MOST_NAMED: Final = 256
"""GPUs in one list; a node has 64 at most."""
_LONGEST: Final = 64
"""Characters of a name that are repeated in an error."""


class RequestError(Exception):
    """The question can't be answered as it was put; the text says what is wrong with it."""


def count_of(text: str) -> int:
    """Return a number of GPUs.

    Raises:
        AskedError: it isn't one.
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0
    if number < 1:
        raise RequestError(f"n={text[:_LONGEST]!r}: give the number of GPUs to choose, 1 or more")
    return number


def mask_named(topology: Topology, text: str) -> int:
    """Return the mask of GPUs that are named by index or uuid, with commas between.

    Raises:
        AskedError: one of them is not there.
    """
    names = [name.strip() for name in text.split(",", _MOST_NAMED)]
    if len(names) > _MOST_NAMED:
        raise RequestError(f"more than {_MOST_NAMED} GPUs are named")
    bits: dict[str, int] = {}
    for number, card in enumerate(topology.cards):
        bits[card.uuid.lower()] = number
        if card.index is not None:
            bits[str(card.index)] = number
    unknown = [name for name in names if name and name.lower() not in bits]
    if unknown:
        raise RequestError(
            f"there is no GPU {unknown[0][:_LONGEST]!r} here: "
            f"name some of {topology.names(topology.mask)} by index or uuid"
        )
    return mask_of({bits[name.lower()] for name in names if name})


def candidates_named(topology: Topology, text: str) -> int:
    """Return the mask of the candidates that are named.

    Raises:
        AskedError: one of them is not there, or there are none.
    """
    mask = mask_named(topology, text)
    if not mask:
        raise RequestError("candidates names no GPU; leave it out to choose among the free ones")
    return mask


def choose_gpus(
    topology: Topology,
    availability: Availability | None,
    n: int,
    *,
    required: str = "",
    candidates: str | None = None,
) -> Answer:
    """Choose the best `n` GPUs.

    Args:
        topology: the node's.
        availability: what is free; None where that isn't known.
        n: how many.
        required: those that have to be among them, by index or uuid, with commas between.
        candidates: those to choose from, likewise; None for all that are free, or for all that
            there are where nobody tells which are free. Where somebody is there to tell, and it
            isn't known, the caller doesn't ask: see
            `pipeline.component.holder_sources.why_unknown`.

    Returns:
        `n`; `among`, which is `candidates`, `free` or `all`; the GPUs chosen as `gpus`, each with
        `index` and `uuid`; their `mask` in hexadecimal, by the numbers of the topology's document;
        the `score`; `why`, for people; `exact`, which is false if better ones may exist. Where
        there are too few, `gpus` is empty and `score` None.

    Raises:
        AskedError: the question can't be answered.
    """
    if n > len(topology.cards):
        raise RequestError(f"n={n}: this node has {len(topology.cards)} GPUs")
    needed = mask_named(topology, required)
    if needed.bit_count() > n:
        raise RequestError(f"n={n}: must names {needed.bit_count()} GPUs")
    warning = ""
    if candidates is not None:
        among, pool = "candidates", candidates_named(topology, candidates)
    elif availability is not None:
        among, pool = "free", availability.free
    else:
        among, pool = "all", topology.mask
        warning = f"{HOLDERS_UNKNOWN}; "
    choice = best(topology, pool, n, must=needed)
    answer: Answer = {"n": n, "among": among}
    if choice is None:
        count = (pool | needed).bit_count()
        return answer | {
            "gpus": [],
            "mask": "0",
            "score": None,
            "why": f"{warning}{n} are asked for, and there are {count} to choose from",
            "exact": True,
        }
    return answer | {
        "gpus": [{"index": card.index, "uuid": card.uuid} for card in choice.cards],
        "mask": f"{choice.mask:x}",
        "score": choice.score,
        "why": f"{warning}{choice.why}",
        "exact": choice.exact,
    }
