"""Helpers for sources of claims: device plugin ids, patterns of names, reuse of equal claims."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from pipeline.model.claims import Claim, RawDeviceId

MAX_CLAIMED_DEVICES = 10_000
"""Limit on pairs of a container and a device in one source's claims.

A node runs some hundred containers and has some dozen devices. The join processes all claims in one
step, so that more claims would delay all other events.
"""

# Device plugins that allocate GPUs by units of memory or cores have an id for each unit: 80,000 for
# a GPU of 80 GB. It does not matter which units a container has.
_UNIT = re.compile(
    r"((?:(?:GPU|MIG)-.+?|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})-(?:_|memory|core))"
    r"-([0-9]{1,9})"
)
UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,127}(?:::[0-9]{1,9})?")
"""Matches the uuid of a GPU or a MIG instance, also in the form of drivers before R470
(`MIG-GPU-<uuid>/1/0`), and a replica of it (`::5` or `/vgpu5` behind the uuid)."""

_REPLICA = re.compile(r"(?:::[0-9]+|/vgpu[0-9]+)$")


def glob_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that checks whether a name matches one of the patterns. Case matters."""
    found = re.compile("|".join(map(fnmatch.translate, patterns))).match
    return lambda name: found(name) is not None


def plugin_ids(ids: Iterable[str]) -> tuple[RawDeviceId, ...]:
    """Return a device plugin's ids, sorted and each once.

    Of ids that stand for units of one GPU only the one with the lowest number is kept.
    """
    units: dict[str, int] = {}
    texts: set[str] = set()
    for text in ids:
        unit = _UNIT.fullmatch(text)
        if unit is None:
            texts.add(text)
        else:
            gpu, number = unit[1], int(unit[2])
            units[gpu] = min(number, units.get(gpu, number))
    texts.update(f"{gpu}-{number}" for gpu, number in units.items())
    return tuple(RawDeviceId("plugin", text) for text in sorted(texts))


def without_replica(text: str) -> str:
    """Return the device id within the id of a replica; another id is returned unchanged.

    Examples of replicas: `GPU-x::1`, `nvidia0/vgpu1`.
    """
    return _REPLICA.sub("", text)


def reuse_unchanged(before: tuple[Claim, ...], now: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Return the claims of `now`, with the objects of `before` for claims that are equal.

    The comparison of ten thousand claims takes long, and the join does it in the event loop. The
    comparison of an object with itself is immediate.
    """
    if before == now:
        return before
    known = {(claim.subject, claim.resource): claim for claim in before}
    return tuple([_reused_or(known.get((claim.subject, claim.resource)), claim) for claim in now])


def _reused_or(before: Claim | None, now: Claim) -> Claim:
    if before is None:
        return now
    return before if before == now else replace(now, subject=before.subject)
