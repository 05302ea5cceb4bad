"""Read usage accounts of one GPU from the metrics page, as exact decimals."""

import re
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from tests.e2e.processes import get, wait_until

_LINE: Final = re.compile(r"^(podgpu_\w+)\{(.*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_XIDS: Final = "podgpu_container_xid_errors_total"
ACCOUNTED: Final = "podgpu_device_accounted_seconds_total"
QUANTITIES: Final = ("busy_seconds_total", "held_seconds_total", "energy_joules_total")


class Page:
    """A metrics page and the time of the scrape.

    Attributes:
        at: time of the monotonic clock.
        text: the page.
        samples: values by metric and labels.
    """

    def __init__(self, port: int) -> None:
        text = self.text = get(port, "/metrics").body.decode()
        self.at = time.monotonic()
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], Decimal] = {}
        for line in text.splitlines():
            if found := _LINE.match(line):
                key = (found[1], frozenset(_LABEL.findall(found[2])))
                self.samples[key] = Decimal(found[3])

    def of(self, family: str) -> dict[str, Decimal]:
        """Return the values of a metric by pod; samples without pod have an empty name."""
        found: dict[str, Decimal] = {}
        for (name, pairs), value in self.samples.items():
            if name == family:
                pod = dict(pairs).get("pod", "")
                found[pod] = found.get(pod, Decimal(0)) + value
        return found

    def of_device(self, family: str) -> Decimal:
        """Return the only value of a metric."""
        (value,) = (value for (name, _), value in self.samples.items() if name == family)
        return value

    def accounted(self) -> list[Decimal]:
        """Return the accounted time; an empty list before the first usage sample."""
        return [value for (name, _), value in self.samples.items() if name == ACCOUNTED]

    def account(self, quantity: str) -> dict[str, Decimal]:
        """Return a quantity by pod, with the unattributed part under an empty name."""
        return {
            **self.of(f"podgpu_container_{quantity}"),
            "": self.of_device(f"podgpu_device_unattributed_{quantity}"),
        }

    def xids(self) -> dict[str, dict[str, Decimal]]:
        """Return the numbers of XID errors by pod and code."""
        found: dict[str, dict[str, Decimal]] = {}
        for (name, pairs), value in self.samples.items():
            labels = dict(pairs)
            if name == _XIDS:
                found.setdefault(labels["pod"], {})[labels["xid"]] = value
        return found

    def without_uid(self) -> set[str]:
        """Return the pods with XID errors but without uid."""
        return {
            labels["pod"]
            for labels in (dict(pairs) for name, pairs in self.samples if name == _XIDS)
            if not labels.get("pod_uid")
        }


def next_look(port: int, within: float = 15) -> Page:
    """Wait for the next usage sample, and return the first page after it."""
    before = Page(port).accounted()
    page: list[Page] = []

    def looked() -> bool:
        page[:] = [Page(port)]
        return page[0].accounted() not in ([], before)

    wait_until(looked, "the next usage sample", within, every=0.02)
    return page[0]


def grown(before: Page, after: Page, quantity: str) -> Mapping[str, Decimal]:
    """Return the growth of a quantity by pod, with the unattributed part under an empty name."""
    old = before.account(quantity)
    return {pod: value - old.get(pod, Decimal(0)) for pod, value in after.account(quantity).items()}
