"""What the page says of pods: an info family, and labels on the readings for those who ask."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.text_format import labels
from pipeline.model import PodInfo

_OTHER = re.compile(r"[^a-zA-Z0-9_]")


def pod_info_line(pod: PodInfo, style: PageNaming) -> bytes:
    """Return the pod's line of `podgpu_pod_info`."""
    names = style.names
    named = (
        (names.namespace, pod.namespace),
        (names.pod, pod.name),
        ("pod_uid", pod.uid),
        ("phase", pod.phase),
        ("owner_kind", pod.owner_kind),
        ("owner_name", pod.owner_name),
        ("qos_class", pod.qos),
        *style.on_node,
    )
    theirs, annotations = _named(pod, style)
    return b"podgpu_pod_info{%b} 1\n" % labels((*named, *theirs, *annotations))


def pod_labels(uid: str, pod: PodInfo | None, style: PageNaming) -> Iterable[tuple[str, str]]:
    """Yield the labels that a reading carries besides the container's names.

    Args:
        uid: of the pod; empty when unknown.
        pod: what is known of it.
        style: says what is wanted.
    """
    wanted = style.options.inline
    if "pod_uid" in wanted:
        yield "pod_uid", uid
    if pod is None or wanted in {(), ("pod_uid",)}:
        return
    theirs, annotations = _named(pod, style)
    if "labels" in wanted:
        yield from theirs
    if "annotations" in wanted:
        yield from annotations


def _named(
    pod: PodInfo, style: PageNaming
) -> tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
    """Return a pod's labels and its annotations under names that Prometheus takes.

    They are the same wherever the pod is told of. Of names that come to the same, each gets a
    checksum of the original behind it: which of them has the plain name would depend on the others.
    """
    prefixes = (style.options.pod_label_prefix, "annotation_")
    told = (pod.labels, pod.annotations)
    plain = [
        [style.unused_label_name(prefix + _OTHER.sub("_", name)) for name, _ in pairs]
        for prefix, pairs in zip(prefixes, told, strict=True)
    ]
    count = Counter(name for names in plain for name in names)
    taken = {name for name, times in count.items() if times == 1}

    def unlike(original: str, name: str) -> str:
        if count[name] == 1:
            return name
        other = style.unused_label_name(
            f"{name}_{zlib.crc32(original.encode('utf-8', 'replace')):08x}"
        )
        while other in taken:
            other = style.unused_label_name(f"{other}_")
        taken.add(other)
        return other

    theirs, annotations = (
        [
            (unlike(original, name), value)
            for (original, value), name in zip(pairs, names, strict=True)
        ]
        for pairs, names in zip(told, plain, strict=True)
    )
    return theirs, annotations
