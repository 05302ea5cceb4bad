"""What the page says of pods: an info family, and labels on the readings for those who ask."""

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable

from pipeline.model import Pairs, PodInfo
from sinks.prometheus.options import Inline
from sinks.prometheus.text import labels

_OTHER = re.compile(r"[^a-zA-Z0-9_]")


def line(pod: PodInfo, node: str) -> bytes:
    """Return the pod's line of `podgpu_pod_info`."""
    named = (
        ("namespace", pod.namespace),
        ("pod", pod.name),
        ("pod_uid", pod.uid),
        ("phase", pod.phase),
        ("owner_kind", pod.owner_kind),
        ("owner_name", pod.owner_name),
        ("qos_class", pod.qos),
        ("Hostname", node),
    )
    rest = (*_named("label", pod.labels), *_named("annotation", pod.annotations))
    return b"podgpu_pod_info{%b} 1\n" % labels((*named, *rest))


def inline(uid: str, pod: PodInfo | None, wanted: Collection[Inline]) -> Iterable[tuple[str, str]]:
    """Yield the labels that a reading carries besides the container's names.

    Args:
        uid: of the pod; empty when unknown.
        pod: what is known of it.
        wanted: what the configuration asks for.
    """
    if "pod_uid" in wanted:
        yield "pod_uid", uid
    if pod is not None and "labels" in wanted:
        yield from _named("label", pod.labels)
    if pod is not None and "annotations" in wanted:
        yield from _named("annotation", pod.annotations)


def _named(prefix: str, pairs: Pairs) -> Iterable[tuple[str, str]]:
    """Yield pairs under names that Prometheus takes.

    Of a pod's names that come to the same, each gets a checksum of the original behind it: which of
    them has the plain name would depend on the others.
    """
    plain = [f"{prefix}_{_OTHER.sub('_', name)}" for name, _ in pairs]
    count = Counter(plain)
    taken = {name for name, times in count.items() if times == 1}
    for (original, value), name in zip(pairs, plain, strict=True):
        shown = name
        if count[name] > 1:
            shown = f"{name}_{zlib.crc32(original.encode('utf-8', 'replace')):08x}"
            while shown in taken:
                shown += "_"
            taken.add(shown)
        yield shown, value
