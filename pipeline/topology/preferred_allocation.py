"""Requests for the best GPUs, for HTTP endpoints and commands: indexes and uuids in, JSON out."""

from typing import Any, Final, TypeAlias

from pipeline.model.availability import Availability
from pipeline.model.bitmask import mask_of
from pipeline.model.topology_tree import Topology
from pipeline.topology.selection import best
from pipeline.topology.text_views import held_summary

Answer: TypeAlias = dict[str, Any]

HOLDERS_UNKNOWN: Final = "no source reports the holders, so held GPUs may be among them"

_MOST_NAMED: Final = 256
"""Limit on the GPUs in one list; a node has 64 at most."""
_LONGEST: Final = 64
"""Limit on the characters of a name that an error repeats."""


class RequestError(Exception):
    """The request is invalid; the text says what is wrong with it."""


def count_of(text: str) -> int:
    """Return the number of GPUs that a text states.

    Raises:
        RequestError: the text is no integer from 1 to 9999.
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0
    if number < 1:
        raise RequestError(f"n={text[:_LONGEST]!r}: give the number of GPUs to choose, 1 or more")
    return number


def mask_named(topology: Topology, text: str) -> int:
    """Return the mask of GPUs that are listed by index or uuid, separated by commas.

    Raises:
        RequestError: one of them does not exist.
    """
    names = [name.strip() for name in text.split(",", _MOST_NAMED)]
    if len(names) > _MOST_NAMED:
        raise RequestError(f"more than {_MOST_NAMED} GPUs are listed; list at most {_MOST_NAMED}")
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


def choose_gpus(
    topology: Topology,
    availability: Availability | None,
    n: int,
    *,
    must: str = "",
    candidates: str | None = None,
) -> Answer:
    """Choose the best `n` GPUs.

    Args:
        topology: the topology of the node.
        availability: which GPUs are free; None where that is unknown.
        n: number of GPUs to choose, including those of `must`.
        must: GPUs that must be chosen, by index or uuid, separated by commas.
        candidates: GPUs to choose from, in the same form; None for all free GPUs, or for all GPUs
            if the availability is unknown because no source reports the holders. If such a source
            exists and the availability is still unknown, the caller must not call this function:
            see `pipeline.component.holder_sources.availability_unknown_reason`.

    Returns:
        `n`; `among`, which is `candidates`, `free` or `all`; the chosen GPUs as `gpus`, each with
        `index` and `uuid`; their `mask` in hexadecimal, by the numbers of the topology document;
        the `score`; `why`, for people; `exact`, which is false if a better choice may exist. If
        there are too few GPUs, `gpus` is empty and `score` None.

    Raises:
        RequestError: the request is invalid.
    """
    if n > len(topology.cards):
        raise RequestError(f"n={n}: this node has only {len(topology.cards)} GPUs")
    needed = mask_named(topology, must)
    if needed.bit_count() > n:
        raise RequestError(f"n={n}: must names {needed.bit_count()} GPUs, more than n")
    warning = ""
    if candidates is not None:
        among, pool = "candidates", mask_named(topology, candidates)
        if not pool:
            raise RequestError(
                "candidates lists no GPU; leave candidates out to choose among the free GPUs"
            )
    elif availability is not None:
        among, pool = "free", availability.free
    else:
        among, pool = "all", topology.mask
        warning = f"{HOLDERS_UNKNOWN}; "
    choice = best(topology, pool, n, must=needed)
    answer: Answer = {"n": n, "among": among}
    if choice is None:
        return answer | {
            "gpus": [],
            "mask": "0",
            "score": None,
            "why": f"{warning}GPUs requested: {n}; {_too_few(pool | needed, availability, among)}",
            "exact": True,
        }
    return answer | {
        "gpus": [{"index": card.index, "uuid": card.uuid} for card in choice.cards],
        "mask": f"{choice.mask:x}",
        "score": choice.score,
        "why": f"{warning}{choice.why}",
        "exact": choice.exact,
    }


def _too_few(pool: int, availability: Availability | None, among: str) -> str:
    """Return why there are too few GPUs: how many there are, and who holds the others."""
    count = f"GPUs to choose from: {pool.bit_count()}"
    if among != "free" or availability is None:
        return count
    held = held_summary(availability)
    if availability.free:
        return f"{count}; held: {held}" if held else count
    number = len(availability.cards)
    every = availability.held.bit_count() == number
    return f"{f'all {number} GPUs are held' if every else 'no GPU is free'}: {held}"
