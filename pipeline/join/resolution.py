"""One rule that turns the claims of all sources into holders.

1. A claim that is no longer good, or names no device of this node, holds nothing.
2. Of all claims on one device, those with the strongest evidence stand (`Evidence`); the others are
   overruled.
3. Several containers that stand on equal evidence all hold the device: it is shared.
4. Where one container is named twice on equal evidence, the source that is earlier in the
   configuration has the word.

The result depends on the claims alone, not on the order in which they were heard.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from pipeline.join.identity import DeviceIndex
from pipeline.model import Claim, Evidence, Instant, PartialRef, RawDeviceId

RawIds: TypeAlias = dict[tuple[str, str], RawDeviceId]
"""Device ids by scheme and text, each once. Pairs of texts hash many times as fast as the ids."""

# The order of `PartialRef` itself, which compares many times as slowly.
_by_subject = attrgetter(
    *(f"subject.{part}" for part in ("namespace", "pod", "container", "uid", "container_id"))
)
_evidence = attrgetter("origin.evidence")


class Holding(NamedTuple):
    """A container on a device, before the join knows since when."""

    subject: PartialRef
    share: float | None
    since: Instant | None
    source: str
    evidence: Evidence


@dataclass(slots=True)
class Resolution:
    """What the claims come to.

    Attributes:
        holdings: by device uuid, sorted by subject; devices that nobody holds are missing.
        unresolved: by source, ids that fit no device; sources without any are missing.
    """

    holdings: dict[str, list[Holding]] = field(default_factory=dict)
    unresolved: dict[str, RawIds] = field(default_factory=dict)


def resolve(claims: Mapping[str, Iterable[Claim]], devices: DeviceIndex) -> Resolution:
    """Apply the rule of this module.

    Args:
        claims: good claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
    """
    known: dict[tuple[str, str], str | None] = {}
    said_of: dict[str, dict[str, list[Claim]]] = {}
    unresolved: dict[str, RawIds] = {}
    for source, said in claims.items():
        strange: RawIds = {}
        mine: dict[str, list[Claim]] = {}
        for claim in said:
            for raw in claim.devices:
                written = (raw.scheme, raw.text)
                if written in known:
                    uuid = known[written]
                else:
                    uuid = known[written] = devices.resolve(raw)
                if uuid is None:
                    strange[written] = raw
                elif uuid in mine:
                    mine[uuid].append(claim)
                else:
                    mine[uuid] = [claim]
        for uuid, on_it in mine.items():
            said_of.setdefault(uuid, {})[source] = on_it
        if strange:
            unresolved[source] = strange
    return Resolution({uuid: _weigh(by_source) for uuid, by_source in said_of.items()}, unresolved)


def _weigh(claims: Mapping[str, list[Claim]]) -> list[Holding]:
    """Return who holds a device, sorted by subject, given all claims on it by source."""
    strongest = min(min(map(_evidence, said)) for said in claims.values())
    held: list[Holding] = []
    for source, said in claims.items():
        standing = said
        if max(map(_evidence, said)) != strongest:
            standing = [claim for claim in said if claim.origin.evidence == strongest]
        held += [
            Holding(claim.subject, claim.share, claim.since, source, strongest)
            for claim in _once_each(standing)
        ]
    if len(claims) == 1:
        return held
    # Stable, so that of one subject's the earlier source's comes first.
    held.sort(key=_by_subject)
    return [next(same) for _, same in groupby(held, _by_subject)]


def _once_each(claims: list[Claim]) -> list[Claim]:
    """Return a source's claims on a device sorted by subject, one for each subject."""
    keys = [_by_subject(claim) for claim in claims]
    chosen = dict(zip(keys, claims, strict=True))
    if len(chosen) < len(claims):
        claims = sorted(claims, key=_order, reverse=True)
        chosen = {_by_subject(claim): claim for claim in claims}
    return [chosen[key] for key in sorted(chosen)]


def _order(claim: Claim) -> tuple[object, ...]:
    """Key that leaves no two different claims equal, so that arrival order has no say.

    Weighed only where a source names a container twice on one device: it costs a lot.
    """
    since = claim.since.mono_ns if claim.since is not None else -1
    share = claim.share if claim.share is not None else -1.0
    return (claim.origin.evidence, claim.subject, claim.devices, since, share, claim.origin.detail)
