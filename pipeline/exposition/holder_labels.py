"""The labels of a device, and the families that say who holds it.

A device that one container holds carries that container's labels. A device that several hold
carries none of them: its readings are the device's, and a copy for each holder would make every sum
wrong. `podgpu_device_holder_info` names the holders, for joins. Who asks for copies gets them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pipeline.exposition import pod_labels as pods
from pipeline.exposition.device_labels import DCGM_ONLY, base, details, facts
from pipeline.exposition.naming import COPY_LABEL, PageNaming
from pipeline.exposition.text_format import labels, number
from pipeline.model import Access, Attribution, Holder, Instant, PartialRef, only_holder


@dataclass(frozen=True, slots=True)
class Rendered:
    """An attribution's labels.

    Attributes:
        device_labels: those that name the device, as dcgm-exporter does.
        own_labels: those that name the device in our own families.
        holder_labels: those that name the container, each after a comma: one for each series that a
            reading makes.
        pod_label_names: names in `holder_labels` that are a pod's own.
        device: the line of `podgpu_device_info`.
        board: the line of `podgpu_device_board_info`; empty where nothing is known.
        holders: lines of `podgpu_device_holder_info`.
        access: lines of `podgpu_device_access_info`.
        since: lines of `podgpu_device_holder_since_timestamp_seconds`, each without its value, and
            the moment: the value changes when the wall clock is set.
        shares: lines of `podgpu_device_holder_share`.
        pods: lines of `podgpu_pod_info`; a pod that holds several devices has the same with each.
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
    """Renders each attribution once, for as long as somebody keeps the attribution.

    Args:
        style: names of the labels, and which there are.
    """

    def __init__(self, style: PageNaming) -> None:
        self.style = style
        self._rendered: WeakKeyDictionary[Attribution, Rendered] = WeakKeyDictionary()

    def __getitem__(self, attribution: Attribution) -> Rendered:
        found = self._rendered.get(attribution)
        if found is None:
            found = _render(attribution, self.style)
            self._rendered[attribution] = found
        return found


def _render(attribution: Attribution, style: PageNaming) -> Rendered:
    device = attribution.device
    named, known = list(base(device, style)), facts(device)
    own = labels((name, value) for name, value in named if name not in DCGM_ONLY)
    nobody = labels(_holder_labels(None, "", style, pod=False))
    held: dict[bytes, Holder] = {}
    for holder in attribution.holders:
        held.setdefault(labels(_holder(holder, style)), holder)
    backs = [
        _holder_labels(holder, replica, style)
        for holder, replica in _shown_holders(attribution.holders, style)
    ]
    return Rendered(
        device_labels=labels(
            (*named, *((label, known.get(fact, "")) for label, fact in style.facts))
        ),
        own_labels=own,
        holder_labels=tuple({b"," + labels(back) if back else b"": None for back in backs}),
        pod_label_names=frozenset(name for back in backs for name, _ in back) - style.fixed,
        device=_info(b"podgpu_device_info", own, labels(details(device)), nobody),
        board=_info(b"podgpu_device_board_info", own, labels(known.items()), nobody)
        if device.facts
        else b"",
        holders=tuple(_info(b"podgpu_device_holder_info", own, holder) for holder in held),
        access=tuple(
            _info(b"podgpu_device_access_info", own, access)
            for access in dict.fromkeys(labels(_holder(one, style)) for one in attribution.access)
        ),
        since=tuple(
            (b"podgpu_device_holder_since_timestamp_seconds{%b,%b} " % (own, name), holder.since)
            for name, holder in held.items()
        ),
        shares=tuple(
            b"podgpu_device_holder_share{%b,%b} %b\n" % (own, name, shown)
            for name, holder in held.items()
            if holder.share is not None and (shown := number(holder.share)) is not None
        ),
        pods=tuple(pods.pod_info_line(h.pod, style) for h in held.values() if h.pod is not None),
        conflicts=_info(b"podgpu_attribution_conflicts", own, nobody, value=attribution.conflicts),
    )


def _info(name: bytes, *given: bytes, value: int = 1) -> bytes:
    """Return a line with the labels given, of which some may be none."""
    return b"%b{%b} %d\n" % (name, b",".join(filter(None, given)), value)


def _shown_holders(
    holders: Sequence[Holder], style: PageNaming
) -> Iterator[tuple[Holder | None, str]]:
    """Yield those that a reading is told of, with the replica that each has."""
    if style.options.sharing == "info" or not holders:
        yield only_holder(holders), ""
        return
    for holder in holders:
        for replica in holder.replicas or ("",):
            yield holder, replica


def _holder_labels(
    holder: Holder | None, replica: str, style: PageNaming, *, pod: bool = True
) -> list[tuple[str, str]]:
    """Return the labels that name a container, and what is told of its pod besides.

    Without a holder they are empty, and not missing: else a scraper that honours labels puts
    podgpu's own pod there.
    """
    if not style.options.containers:
        return []
    subject = holder.subject if holder is not None else PartialRef()
    names = (subject.namespace, subject.pod, subject.container)
    back = list(zip(style.names.holder, names, strict=True))
    if replica:
        back.append((COPY_LABEL, replica))
    if pod:
        back += pods.pod_labels(subject.uid, holder.pod if holder is not None else None, style)
    return back


def _holder(holder: Holder | Access, style: PageNaming) -> Iterable[tuple[str, str]]:
    subject = holder.subject
    names = (subject.namespace, subject.pod, subject.container)
    yield from zip(style.names.holder, names, strict=True)
    yield "pod_uid", subject.uid
    yield "source", holder.source
    yield "evidence", holder.evidence.name.lower()
