"""What sources of claims have in common: which resources are GPUs, the kubelet's ids, sameness."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from pipeline.model.claims import Claim, RawDeviceId

MAX_CLAIMED_DEVICES = 10_000
"""Pairs of a container and a device that it holds, in one source's claims.

A node runs some hundred containers and has some dozen devices. The join works through all claims in
one go, so that more of them would hold up everybody else.
"""

# Plugins that hand out GPUs by the unit of memory or of cores have an id for each unit: 80,000 on a
# GPU of 80 GB. Which units a container has tells nothing.
_UNIT = re.compile(
    r"((?:(?:GPU|MIG)-.+?|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})-(?:_|memory|core))"
    r"-([0-9]{1,9})"
)
_REPLICA = re.compile(r"(?:::[0-9]+|/vgpu[0-9]+)$")


def glob_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return what tells whether a name fits one of the glob patterns, as to case too."""
    found = re.compile("|".join(map(fnmatch.translate, patterns))).match
    return lambda name: found(name) is not None


def plugin_ids(ids: Iterable[str]) -> tuple[RawDeviceId, ...]:
    """Return a device plugin's ids, sorted and each once.

    Of ids that stand for units of one GPU the first alone is kept, whatever order they come in.
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
    """Return the device of which a plugin's id names a share: `GPU-x::1`, `nvidia0/vgpu1`."""
    return _REPLICA.sub("", text)


def reuse_unchanged(before: tuple[Claim, ...], now: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Return the claims of now, those of before as the objects that they were.

    The join compares claims in the event loop, where ten thousand take a while; what is the same
    object is equal at once.
    """
    if before == now:
        return before
    known = {(claim.subject, claim.resource): claim for claim in before}
    return tuple([_reused_or(known.get((claim.subject, claim.resource)), claim) for claim in now])


def _reused_or(before: Claim | None, now: Claim) -> Claim:
    if before is None:
        return now
    return before if before == now else replace(now, subject=before.subject)
