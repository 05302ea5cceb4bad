"""Render the labels of a device, its holders and their pods, and the families that describe them.

Readings of a device with one holder have the labels of that holder. If several containers of one
pod hold it, its readings have the labels of the pod, and an empty container label. If several pods
hold it, these labels are empty: a copy for each holder would make sums wrong.
`podgpu_device_holder_info` lists the holders, for joins in PromQL. With the option
`sharing: copies`, there is a copy for each holder and each of its replicas; with
`sharing: claims` only where a ResourceClaim was allocated the device. `process_shares.py` lists the
fields that have a value of its own for each holder then.
"""

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pipeline.exposition.naming import (
    CLAIM_LABELS,
    CLAIMED_MIG_LABELS,
    JOB_LABEL,
    POD_LABELS,
    REPLICA_LABEL,
    PageNaming,
)
from pipeline.exposition.owner_labels import (
    holder_names,
    identity_labels,
    info_line,
    reading_labels,
)
from pipeline.exposition.process_shares import ContainerName
from pipeline.exposition.text_format import labels, number
from pipeline.fields import BOARD_LABELS, LABELS
from pipeline.model import (
    Access,
    Attribution,
    ClaimedDevice,
    Device,
    Holder,
    Instant,
    PartialRef,
    PodInfo,
    only_holder,
)

_INVALID = re.compile(r"[^a-zA-Z0-9_]")

DCGM_ONLY = frozenset({"pci_bus_id", "modelName"})
"""Labels of dcgm-exporter that podgpu's own families do not have. `podgpu_device_info` has the same
values once, under names that follow Prometheus' conventions."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rendered labels and lines of an attribution.

    Attributes:
        device_labels: labels that identify the device, as in dcgm-exporter.
        own_labels: labels that identify the device in podgpu's own families.
        holder_labels: labels that identify the container, with a comma in front. A reading has one
            series for each entry.
        no_holder_labels: the same labels with empty values, as a device without holders has them.
        shares: with `sharing: copies`, the labels of the series that show what the processes of a
            holder use, each with the containers that it means. Empty otherwise.
        pod_label_names: names in `holder_labels` that come from pod labels or annotations, or that
            describe a job or a container without a pod.
        names_job: whether `holder_labels` name a job.
        lines: lines of the families in `INFO_FAMILIES`, by family.
        since: labels of a line of `podgpu_device_holder_since_timestamp_seconds`, each with the
            time. The line's value is not rendered: it changes when the wall clock is set.
    """

    device_labels: bytes
    own_labels: bytes
    holder_labels: tuple[bytes, ...]
    no_holder_labels: bytes
    shares: Mapping[bytes, tuple[ContainerName, ...]]
    pod_label_names: frozenset[str]
    names_job: bool
    lines: Mapping[str, Sequence[bytes]]
    since: Sequence[tuple[bytes, Instant]]


class LabelCache:
    """Renders each attribution once, and keeps the result as long as the attribution exists.

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
    holders: dict[bytes, Holder] = {}
    for holder in attribution.holders:
        holders.setdefault(labels(_holder_info_labels(holder, naming)), holder)
    holder_pairs = [
        [
            *_holder_labels(holder, replica, naming),
            *_claim_labels(_claim_of(holder, attribution.holders), device, naming),
        ]
        for holder, replica in _shown_holders(attribution.holders, naming)
    ]
    lines: defaultdict[str, list[bytes]] = defaultdict(list)

    def add(name: str, *label_sets: bytes, value: bytes = b"1") -> None:
        text = b",".join(filter(None, label_sets))
        lines[name].append(b"%b{%b} %b\n" % (name.encode(), text, value))

    add("podgpu_device_info", own, labels(details(device)), no_holder)
    if device.facts:
        board_pairs = ((field.name, constant_texts[field.name]) for field in BOARD_LABELS)
        add("podgpu_device_board_info", own, labels(board_pairs), no_holder)
    for text, holder in holders.items():
        claim = labels(_claim_labels(holder.claimed, device, naming))
        add("podgpu_device_holder_info", own, text, claim)
        if holder.share is not None and (share := number(holder.share)) is not None:
            add("podgpu_device_holder_share", own, text, value=share)
        if holder.subject.kind != "pod":
            family, line = info_line(holder.subject, holder.pod, naming)
            lines[family].append(line)
        elif holder.pod is not None:
            lines["podgpu_pod_info"].append(pod_info_line(holder.pod, naming))
    for text in dict.fromkeys(labels(_holder_info_labels(a, naming)) for a in attribution.access):
        add("podgpu_device_access_info", own, text)
    add("podgpu_attribution_conflicts", own, no_holder, value=b"%d" % attribution.conflicts)
    fact_pairs = ((label, constant_texts.get(fact, "")) for label, fact in naming.facts)
    return Rendered(
        device_labels=labels((*device_pairs, *fact_pairs)),
        own_labels=own,
        holder_labels=tuple(dict.fromkeys(map(_after_comma, holder_pairs))),
        no_holder_labels=_after_comma(_holder_labels(None, "", naming)),
        shares=_shares(attribution, naming),
        pod_label_names=frozenset(name for pairs in holder_pairs for name, _ in pairs)
        - naming.fixed,
        names_job=any(name == JOB_LABEL for pairs in holder_pairs for name, _ in pairs),
        lines=lines,
        since=[(b"%b,%b" % (own, text), holder.since) for text, holder in holders.items()],
    )


def _after_comma(pairs: Sequence[tuple[str, str]]) -> bytes:
    return b"," + labels(pairs) if pairs else b""


def _shares(
    attribution: Attribution, naming: PageNaming
) -> Mapping[bytes, tuple[ContainerName, ...]]:
    """Return the labels of the holders' own values, each with the containers that it means."""
    found: defaultdict[bytes, dict[ContainerName, None]] = defaultdict(dict)
    if naming.options.sharing == "copies" and naming.options.containers:
        first_replicas: dict[ContainerName, str] = {}
        for holder in attribution.holders:
            subject = holder.subject
            name = (subject.namespace, subject.pod, subject.container, subject.uid)
            replica = first_replicas.setdefault(name, next(iter(holder.replicas), ""))
            pairs = [
                *_holder_labels(holder, replica, naming, uid=True),
                *_claim_labels(holder.claimed, attribution.device, naming),
            ]
            found[_after_comma(pairs)][name] = None
    return {text: tuple(names) for text, names in found.items()}


def _shown_holders(
    holders: Sequence[Holder], naming: PageNaming
) -> Iterator[tuple[Holder | None, str]]:
    """Yield (holder, replica) for each copy of a reading; without copies, yield one pair."""
    sharing = naming.options.sharing
    by_claim = sharing == "claims" and any(holder.claimed for holder in holders)
    if not (by_claim or (sharing == "copies" and holders)):
        yield only_holder(holders), ""
        return
    for holder in holders:
        for replica in holder.replicas or ("",):
            yield holder, replica


def _holder_labels(
    holder: Holder | None,
    replica: str,
    naming: PageNaming,
    *,
    pod: bool = True,
    uid: bool = False,
) -> list[tuple[str, str]]:
    """Return the labels that identify a container, and the optional labels of its pod.

    Without a holder the labels have empty values. If they were missing, a scraper with
    `honor_labels` would set them to podgpu's own pod. Without the option `containers` there are no
    labels.
    """
    if not naming.options.containers:
        return []
    subject = holder.subject if holder is not None else PartialRef()
    pairs = list(zip(naming.names.holder, holder_names(subject), strict=True))
    if replica:
        pairs.append((REPLICA_LABEL, replica))
    info = holder.pod if holder is not None else None
    if subject.kind != "pod":
        return [*pairs, *reading_labels(subject, info, naming, uid=uid)]
    if uid and "pod_uid" not in naming.options.inline:
        pairs.append(("pod_uid", subject.uid))
    if pod:
        pairs += pod_labels(subject.uid, info, naming)
    return pairs


def _claim_of(holder: Holder | None, holders: Sequence[Holder]) -> ClaimedDevice | None:
    """Return the ResourceClaim of a holder; without a holder, the one that all holders share."""
    if holder is not None:
        return holder.claimed
    shared = {each.claimed for each in holders}
    return shared.pop() if len(shared) == 1 else None


def _claim_labels(
    claimed: ClaimedDevice | None, device: Device, naming: PageNaming
) -> Iterator[tuple[str, str]]:
    """Yield the labels of a ResourceClaim; nothing without one, or if they are not wanted."""
    options = naming.options
    if claimed is None or "resource_claims" not in options.inline or not options.containers:
        return
    texts = (
        claimed.claim_name,
        claimed.claim_namespace,
        claimed.driver,
        claimed.pool,
        claimed.device,
    )
    yield from zip(CLAIM_LABELS, texts, strict=True)
    if device.mig is not None:
        yield from zip(CLAIMED_MIG_LABELS, (device.mig.profile, device.uuid), strict=True)


def _holder_info_labels(holder: Holder | Access, naming: PageNaming) -> Iterable[tuple[str, str]]:
    subject = holder.subject
    yield from zip(naming.names.holder, holder_names(subject), strict=True)
    yield from identity_labels(subject)
    yield "source", holder.source
    yield "evidence", holder.evidence.name.lower()


def base(device: Device, naming: PageNaming) -> Iterable[tuple[str, str]]:
    """Yield the labels that identify a device and the node, in the order of the page."""
    mig, model = device.mig, device.model
    yield "gpu", _text(device.index)
    yield naming.names.uuid, device.gpu_uuid
    yield "pci_bus_id", device.pci_bus_id
    yield "device", f"nvidia{device.minor}" if device.minor is not None else ""
    yield "modelName", "-".join(model.split()) if naming.options.replace_model_blanks else model
    if mig is not None:
        yield "GPU_I_PROFILE", mig.profile
        yield "GPU_I_ID", str(mig.gpu_instance_id)
        if mig.compute_instance_id is not None:
            yield "GPU_CI_ID", str(mig.compute_instance_id)
    yield from naming.on_node


def details(device: Device) -> Iterable[tuple[str, str]]:
    """Yield the additional labels of `podgpu_device_info`."""
    yield "model", device.model
    yield "pci_bus_id", device.pci_bus_id
    yield "driver", device.driver
    yield "index", _text(device.index)
    yield "minor", _text(device.minor)
    yield "mig_uuid", device.uuid if device.mig is not None else ""


def facts(device: Device) -> Mapping[str, str]:
    """Return the constant texts of a device in the order of the catalogue; empty where unknown."""
    known = dict(device.facts)
    known.setdefault("driver_version", device.driver)
    known.setdefault("name", device.model)
    return {field.name: known.get(field.name, "") for field in LABELS}


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def pod_info_line(pod: PodInfo, naming: PageNaming) -> bytes:
    """Return the line of `podgpu_pod_info` for a pod."""
    names = naming.names
    details = (pod.uid, pod.phase, pod.owner_kind, pod.owner_name, pod.qos)
    pod_pairs = (
        (names.namespace, pod.namespace),
        (names.pod, pod.name),
        *zip(POD_LABELS, details, strict=True),
        *naming.on_node,
    )
    label_pairs, annotations = _metadata_pairs(pod, naming)
    return b"podgpu_pod_info{%b} 1\n" % labels((*pod_pairs, *label_pairs, *annotations))


def pod_labels(uid: str, pod: PodInfo | None, naming: PageNaming) -> Iterable[tuple[str, str]]:
    """Yield the optional labels of a reading that describe the pod of the holder.

    Args:
        uid: UID of the pod; empty if unknown.
        pod: the pod's metadata; None if unknown.
        naming: label names, and which labels to add.
    """
    wanted = naming.options.inline
    if "pod_uid" in wanted:
        yield "pod_uid", uid
    if pod is None or {"labels", "annotations"}.isdisjoint(wanted):
        return
    label_pairs, annotations = _metadata_pairs(pod, naming)
    if "labels" in wanted:
        yield from label_pairs
    if "annotations" in wanted:
        yield from annotations


def _metadata_pairs(
    pod: PodInfo, naming: PageNaming
) -> tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
    """Return a pod's labels and annotations under valid Prometheus label names.

    The names are the same in all families. If several originals map to one name, each of them gets
    a checksum of the original as suffix. Otherwise the name of a label would depend on the other
    labels of the pod.
    """
    prefixes = (naming.options.pod_label_prefix, "annotation_")
    originals = (pod.labels, pod.annotations)
    sanitized = [
        [naming.unused_label_name(prefix + _INVALID.sub("_", name)) for name, _ in pairs]
        for prefix, pairs in zip(prefixes, originals, strict=True)
    ]
    count = Counter(name for names in sanitized for name in names)
    used = {name for name, times in count.items() if times == 1}

    def unique(original: str, name: str) -> str:
        if count[name] == 1:
            return name
        candidate = naming.unused_label_name(
            f"{name}_{zlib.crc32(original.encode('utf-8', 'replace')):08x}"
        )
        while candidate in used:
            candidate = naming.unused_label_name(f"{candidate}_")
        used.add(candidate)
        return candidate

    label_pairs, annotations = (
        [
            (unique(original, name), value)
            for (original, value), name in zip(pairs, names, strict=True)
        ]
        for pairs, names in zip(originals, sanitized, strict=True)
    )
    return label_pairs, annotations
