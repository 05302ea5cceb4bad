"""Render `podgpu_pod_info`, and the optional labels of readings that come from pods."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.exposition.naming import POD_LABELS, PageNaming
from pipeline.exposition.text_format import labels
from pipeline.model import PodInfo

_INVALID = re.compile(r"[^a-zA-Z0-9_]")


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
    if pod is None or wanted in {(), ("pod_uid",)}:
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
    a checksum of the original as suffix. Otherwise it would depend on the other labels which one
    keeps the plain name.
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
