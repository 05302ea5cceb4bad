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
from typing import NamedTuple

from pipeline.join.identity import DeviceIndex
from pipeline.model import Claim, Evidence, Instant, PartialRef, RawDeviceId


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
        unresolved: by source, ids that fit no device, sorted.
    """

    holdings: dict[str, list[Holding]] = field(default_factory=dict)
    unresolved: dict[str, tuple[RawDeviceId, ...]] = field(default_factory=dict)


def resolve(claims: Mapping[str, Iterable[Claim]], devices: DeviceIndex) -> Resolution:
    """Apply the rule of this module.

    Args:
        claims: good claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
    """
    standing: dict[str, dict[PartialRef, Holding]] = {}
    unresolved: dict[str, set[RawDeviceId]] = {}
    for source, said in claims.items():
        for claim in sorted(said, key=_order):
            for raw in claim.devices:
                uuid = devices.resolve(raw)
                if uuid is None:
                    unresolved.setdefault(source, set()).add(raw)
                    continue
                _stand(standing.setdefault(uuid, {}), source, claim)
    return Resolution(
        {uuid: [held[subject] for subject in sorted(held)] for uuid, held in standing.items()},
        {source: tuple(sorted(ids)) for source, ids in unresolved.items()},
    )


def _stand(held: dict[PartialRef, Holding], source: str, claim: Claim) -> None:
    evidence = claim.origin.evidence
    standing = next(iter(held.values()), None)
    if standing is not None and evidence > standing.evidence:
        return
    if standing is not None and evidence < standing.evidence:
        held.clear()
    held.setdefault(
        claim.subject, Holding(claim.subject, claim.share, claim.since, source, evidence)
    )


def _order(claim: Claim) -> tuple[object, ...]:
    """Sort key that leaves no two different claims equal, so that arrival order has no say."""
    since = claim.since.mono_ns if claim.since is not None else -1
    share = claim.share if claim.share is not None else -1.0
    return (claim.origin.evidence, claim.subject, claim.devices, since, share, claim.origin.detail)
