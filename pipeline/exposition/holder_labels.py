"""Render the labels of a device and of its holders, and the families that describe both.

Readings of a device with one holder carry the holder's labels. Readings of a device with several
holders carry none: they describe the whole device, and a copy for each holder would make sums
wrong. `podgpu_device_holder_info` lists the holders, for joins in PromQL. Copies for each holder
are an option.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pipeline.exposition import pod_labels as pods
from pipeline.exposition.device_labels import DCGM_ONLY, base, details, facts
from pipeline.exposition.naming import REPLICA_LABEL, PageNaming
from pipeline.exposition.text_format import labels, number
from pipeline.model import Access, Attribution, Holder, Instant, PartialRef, only_holder


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rendered labels and lines of an attribution.

    Attributes:
        device_labels: labels that identify the device, as in dcgm-exporter.
        own_labels: labels that identify the device in podgpu's own families.
        holder_labels: labels that identify the container, with a comma in front; one entry for each
            series that a reading makes.
        pod_label_names: names in `holder_labels` that come from pod labels or annotations.
        device: the line of `podgpu_device_info`.
        board: the line of `podgpu_device_board_info`; empty where nothing is known.
        holders: lines of `podgpu_device_holder_info`.
        access: lines of `podgpu_device_access_info`.
        since: lines of `podgpu_device_holder_since_timestamp_seconds` without their values, and the
            time: the value changes when the wall clock is set.
        shares: lines of `podgpu_device_holder_share`.
        pods: lines of `podgpu_pod_info`; the same line for each device that a pod holds.
        conflicts: the line of `podgpu_attribution_conflicts`.
    """

    device_labels: bytes
    own_labels: bytes
    holder_labels: tuple[bytes, ...]
    pod_label_names: frozenset[str]
    device: bytes
    board: bytes
    holders: tuple[bytes, ...]
    access: tuple[bytes, ...]
    since: tuple[tuple[bytes, Instant], ...]
    shares: tuple[bytes, ...]
    pods: tuple[bytes, ...]
    conflicts: bytes


class LabelCache:
    """Render each attribution once, and keep the result as long as the attribution exists.

    Args:
        naming: label names, and which optional labels to add.
    """

    def __init__(self, naming: PageNaming) -> None:
        self.naming = naming
        self._rendered: WeakKeyDictionary[Attribution, Rendered] = WeakKeyDictionary()

    def __getitem__(self, attribution: Attribution) -> Rendered:
        found = self._rendered.get(attribution)
        if found is None:
            found = _render(attribution, self.naming)
            self._rendered[attribution] = found
        return found


def _render(attribution: Attribution, naming: PageNaming) -> Rendered:
    device = attribution.device
    device_pairs, constant_texts = list(base(device, naming)), facts(device)
    own = labels((name, value) for name, value in device_pairs if name not in DCGM_ONLY)
    no_holder = labels(_holder_labels(None, "", naming, pod=False))
    holder_by_labels: dict[bytes, Holder] = {}
    for holder in attribution.holders:
        holder_by_labels.setdefault(labels(_holder_info_labels(holder, naming)), holder)
    holder_pairs = [
        _holder_labels(holder, replica, naming)
        for holder, replica in _shown_holders(attribution.holders, naming)
    ]
    return Rendered(
        device_labels=labels(
            (
                *device_pairs,
                *((label, constant_texts.get(fact, "")) for label, fact in naming.facts),
            )
        ),
        own_labels=own,
        holder_labels=tuple(
            {b"," + labels(pairs) if pairs else b"": None for pairs in holder_pairs}
        ),
        pod_label_names=frozenset(name for pairs in holder_pairs for name, _ in pairs)
        - naming.fixed,
        device=_info(b"podgpu_device_info", own, labels(details(device)), no_holder),
        board=_info(b"podgpu_device_board_info", own, labels(constant_texts.items()), no_holder)
        if device.facts
        else b"",
        holders=tuple(
            _info(b"podgpu_device_holder_info", own, holder) for holder in holder_by_labels
        ),
        access=tuple(
            _info(b"podgpu_device_access_info", own, access)
            for access in dict.fromkeys(
                labels(_holder_info_labels(one, naming)) for one in attribution.access
            )
        ),
        since=tuple(
            (b"podgpu_device_holder_since_timestamp_seconds{%b,%b} " % (own, name), holder.since)
            for name, holder in holder_by_labels.items()
        ),
        shares=tuple(
            b"podgpu_device_holder_share{%b,%b} %b\n" % (own, name, shown)
            for name, holder in holder_by_labels.items()
            if holder.share is not None and (shown := number(holder.share)) is not None
        ),
        pods=tuple(
            pods.pod_info_line(h.pod, naming)
            for h in holder_by_labels.values()
            if h.pod is not None
        ),
        conflicts=_info(
            b"podgpu_attribution_conflicts", own, no_holder, value=attribution.conflicts
        ),
    )


def _info(name: bytes, *label_sets: bytes, value: int = 1) -> bytes:
    """Return a line with the given label sets, some of which may be empty."""
    return b"%b{%b} %d\n" % (name, b",".join(filter(None, label_sets)), value)


def _shown_holders(
    holders: Sequence[Holder], naming: PageNaming
) -> Iterator[tuple[Holder | None, str]]:
    """Yield (holder, replica) for each copy of a reading; without copies, only one pair."""
    if naming.options.sharing == "info" or not holders:
        yield only_holder(holders), ""
        return
    for holder in holders:
        for replica in holder.replicas or ("",):
            yield holder, replica


def _holder_labels(
    holder: Holder | None, replica: str, naming: PageNaming, *, pod: bool = True
) -> list[tuple[str, str]]:
    """Return the labels that identify a container, and the optional labels of its pod.

    Without a holder the labels are empty rather than absent. Otherwise a scraper with
    `honor_labels` would set them to podgpu's own pod.
    """
    if not naming.options.containers:
        return []
    subject = holder.subject if holder is not None else PartialRef()
    names = (subject.namespace, subject.pod, subject.container)
    pairs = list(zip(naming.names.holder, names, strict=True))
    if replica:
        pairs.append((REPLICA_LABEL, replica))
    if pod:
        pairs += pods.pod_labels(subject.uid, holder.pod if holder is not None else None, naming)
    return pairs


def _holder_info_labels(holder: Holder | Access, naming: PageNaming) -> Iterable[tuple[str, str]]:
    subject = holder.subject
    names = (subject.namespace, subject.pod, subject.container)
    yield from zip(naming.names.holder, names, strict=True)
    yield "pod_uid", subject.uid
    yield "source", holder.source
    yield "evidence", holder.evidence.name.lower()
