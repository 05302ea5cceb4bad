"""The families that describe the usage of devices by containers.

They are rendered once for each usage sample, not for each round of readings. Values are exact
decimals, so that the parts on the page add up to the total.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pipeline.exposition.holder_labels import LabelCache
from pipeline.exposition.text_format import Format, header, labels
from pipeline.exposition.usage_metrics import (
    CONTAINER,
    CONTAINER_XIDS,
    DEVICE,
    USAGE_FAMILIES,
    Account,
    Breakdown,
    Quantity,
    accounts,
)
from pipeline.model import ContainerUsage, DeviceUsage, Layout, PartialRef, Snapshot, Usage


class UsageFamilies:
    """Renders the usage families.

    Args:
        cache: the rendered labels of attributions.
    """

    def __init__(self, cache: LabelCache) -> None:
        self._cache = cache
        self._naming = cache.naming
        no_holder = ((name, "") for name in self._naming.names.holder)
        # Empty rather than absent: a scraper with honor_labels would add podgpu's own pod.
        self._unattributed_labels = (
            b"," + labels(no_holder) if self._naming.options.containers else b""
        )
        self._usage: Usage | None = None
        self._layout: Layout | None = None
        self._lines: tuple[bytes, ...] = (b"",) * len(USAGE_FAMILIES)
        self._labels: dict[tuple[bytes, PartialRef], bytes] = {}  # those of the last usage

    def body(self, form: Format, snapshot: Snapshot) -> bytes:
        """Return the families; empty if no source reports usage."""
        if snapshot.usage is not self._usage or snapshot.layout is not self._layout:
            self._usage, self._layout = snapshot.usage, snapshot.layout
            self._lines = tuple(self._render(snapshot))
        return b"".join(
            header(form, family.metric, family.kind, family.about) + lines
            for family, lines in zip(USAGE_FAMILIES, self._lines, strict=True)
            if lines
        )

    def _render(self, snapshot: Snapshot) -> Iterator[bytes]:
        before, self._labels = self._labels, {}
        containers: list[tuple[bytes, Sequence[ContainerUsage]]] = []
        devices: dict[Quantity[DeviceUsage], list[tuple[bytes, Sequence[DeviceUsage]]]]
        devices = {family: [] for family in DEVICE}
        for attribution, used, families in accounts(snapshot):
            own = self._cache[attribution].own_labels
            # Several containers have the same labels if their visible names are equal.
            by_labels: dict[bytes, list[ContainerUsage]] = {}
            for one in used.containers:
                key = own, one.subject
                label_text = before.get(key) or self._label_text(own, one.subject)
                self._labels[key] = label_text
                by_labels.setdefault(label_text, []).append(one)
            containers += by_labels.items()
            for family in families:
                devices[family].append((own + self._unattributed_labels, (used,)))
        for of_container in CONTAINER:
            yield _lines(of_container, containers)
        yield _breakdown_lines(CONTAINER_XIDS, containers)
        for family, rows in devices.items():
            yield _lines(family, rows)

    def _label_text(self, own: bytes, subject: PartialRef) -> bytes:
        texts = (subject.namespace, subject.pod, subject.container, subject.uid)
        names = (*self._naming.names.holder, "pod_uid")
        return b"%b,%b" % (own, labels(zip(names, texts, strict=True)))


def _lines(family: Quantity[Account], rows: Iterable[tuple[bytes, Sequence[Account]]]) -> bytes:
    name, divisor = family.metric.encode(), family.divisor
    digits = len(str(divisor)) - 1
    read = family.value
    lines: list[bytes] = []
    for label_text, group in rows:
        known = [value for one in group if (value := read(one)) is not None]
        if known:
            value = known[0] if len(known) == 1 else sum(known)
            lines.append(b"%b{%b} %b\n" % (name, label_text, _decimal(value, divisor, digits)))
    return b"".join(lines)


def _breakdown_lines(
    family: Breakdown, rows: Iterable[tuple[bytes, Sequence[ContainerUsage]]]
) -> bytes:
    name = family.metric.encode()
    lines: list[bytes] = []
    for label_text, group in rows:
        counts: Counter[str] = Counter()
        for one in group:
            counts.update(dict(family.values(one)))
        for value, count in counts.items():
            label = labels([(family.label, value)])
            lines.append(b"%b{%b,%b} %d\n" % (name, label_text, label, count))
    return b"".join(lines)


def _decimal(value: int, divisor: int, digits: int) -> bytes:
    whole, rest = divmod(value, divisor)
    return b"%d.%0*d" % (whole, digits, rest) if rest else b"%d" % whole
