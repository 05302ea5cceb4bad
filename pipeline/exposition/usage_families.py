"""The families that say who used how much of a device.

They are rendered once for each account of usage, which changes with each look at the devices and
not with each round of readings. Values are decimals to the last digit of the account, so that parts
on the page add up as they do in it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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

_DIGITS: Final = {1: 0, 1000: 3, 1_000_000_000: 9}
"""Digits behind the point, by the divisor."""


class UsageFamilies:
    """Renders an account of usage once.

    Args:
        cache: labels of devices that are rendered already.
    """

    def __init__(self, cache: LabelCache) -> None:
        self._cache = cache
        self._style = cache.style
        nobody = ((name, "") for name in self._style.names.holder)
        # Empty, and not missing: else a scraper that honours labels puts podgpu's own pod there.
        self._unattributed_labels = b"," + labels(nobody) if self._style.options.containers else b""
        self._usage: Usage | None = None
        self._layout: Layout | None = None
        self._lines: tuple[bytes, ...] = (b"",) * len(USAGE_FAMILIES)
        self._known: dict[str, _Labels] = {}

    def body(self, form: Format, snapshot: Snapshot) -> bytes:
        """Return the families; nothing where nobody tells who used what."""
        if snapshot.usage is not self._usage or snapshot.layout is not self._layout:
            self._usage, self._layout = snapshot.usage, snapshot.layout
            self._lines = tuple(self._render(snapshot))
        return b"".join(
            header(form, family.metric, family.kind, family.about) + lines
            for family, lines in zip(USAGE_FAMILIES, self._lines, strict=True)
            if lines
        )

    def _render(self, snapshot: Snapshot) -> Iterator[bytes]:
        """Yield the lines of each family."""
        before, self._known = self._known, {}
        containers: list[tuple[bytes, Sequence[ContainerUsage]]] = []
        devices: dict[Quantity[DeviceUsage], list[tuple[bytes, Sequence[DeviceUsage]]]]
        devices = {family: [] for family in DEVICE}
        for attribution, used, told in accounts(snapshot):
            own = self._cache[attribution].own_labels
            named = before.get(used.device)
            if named is None or named.own != own:
                named = _Labels(own, self._style.names.holder)
            self._known[used.device] = named
            containers += named.groups(used.containers)
            for family in told:
                devices[family].append((own + self._unattributed_labels, (used,)))
        for of_container in CONTAINER:
            yield _lines(of_container, containers)
        yield _parts(CONTAINER_XIDS, containers)
        for family, rows in devices.items():
            yield _lines(family, rows)


class _Labels:
    """Labels of a device's containers, kept while the containers are told of.

    Args:
        own: those that name the device.
        names: of the three that name a container.
    """

    def __init__(self, own: bytes, names: tuple[str, str, str]) -> None:
        self.own = own
        self._names = (*names, "pod_uid")
        self._known: dict[PartialRef, bytes] = {}

    def groups(
        self, containers: Iterable[ContainerUsage]
    ) -> Iterable[tuple[bytes, Sequence[ContainerUsage]]]:
        """Return labels and whose they are: several, where names differ in what can't be shown."""
        known, self._known = self._known, {}
        found: dict[bytes, list[ContainerUsage]] = {}
        for used in containers:
            subject = used.subject
            shown = known.get(subject)
            if shown is None:
                texts = (subject.namespace, subject.pod, subject.container, subject.uid)
                named = labels(zip(self._names, texts, strict=True))
                shown = b"%b,%b" % (self.own, named)
            self._known[subject] = shown
            found.setdefault(shown, []).append(used)
        return found.items()


def _lines(family: Quantity[Account], rows: Iterable[tuple[bytes, Sequence[Account]]]) -> bytes:
    name, divisor = family.metric.encode(), family.divisor
    digits = _DIGITS[divisor]
    read = family.value
    lines: list[bytes] = []
    for shown, those in rows:
        known = [value for one in those if (value := read(one)) is not None]
        if known:
            value = known[0] if len(known) == 1 else sum(known)
            lines.append(b"%b{%b} %b\n" % (name, shown, _decimal(value, divisor, digits)))
    return b"".join(lines)


def _parts(family: Breakdown, rows: Iterable[tuple[bytes, Sequence[ContainerUsage]]]) -> bytes:
    name = family.metric.encode()
    lines: list[bytes] = []
    for shown, those in rows:
        counts: Counter[str] = Counter()
        for one in those:
            counts.update(dict(family.values(one)))
        for value, count in counts.items():
            told = labels([(family.label, value)])
            lines.append(b"%b{%b,%b} %d\n" % (name, shown, told, count))
    return b"".join(lines)


def _decimal(value: int, divisor: int, digits: int) -> bytes:
    whole, rest = divmod(value, divisor)
    return b"%d.%0*d" % (whole, digits, rest) if rest else b"%d" % whole
