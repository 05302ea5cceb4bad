"""What a page says of who used how much of one GPU, in exact numbers."""

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
    """One page, and when it was read.

    Attributes:
        at: by the monotonic clock.
        text: the page.
        samples: values by family and labels.
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
        """Return the values of a family by pod; by an empty name those that have none."""
        found: dict[str, Decimal] = {}
        for (name, pairs), value in self.samples.items():
            if name == family:
                pod = dict(pairs).get("pod", "")
                found[pod] = found.get(pod, Decimal(0)) + value
        return found

    def of_device(self, family: str) -> Decimal:
        """Return the only value of a family."""
        (value,) = (value for (name, _), value in self.samples.items() if name == family)
        return value

    def accounted(self) -> list[Decimal]:
        """Return how much time there is an account of; nothing before the first look."""
        return [value for (name, _), value in self.samples.items() if name == ACCOUNTED]

    def account(self, quantity: str) -> dict[str, Decimal]:
        """Return what each pod had of a quantity, and what nobody had by an empty name."""
        return {
            **self.of(f"podgpu_container_{quantity}"),
            "": self.of_device(f"podgpu_device_unattributed_{quantity}"),
        }

    def xids(self) -> dict[str, dict[str, Decimal]]:
        """Return how many XID errors each pod had, by code."""
        found: dict[str, dict[str, Decimal]] = {}
        for (name, pairs), value in self.samples.items():
            labels = dict(pairs)
            if name == _XIDS:
                found.setdefault(labels["pod"], {})[labels["xid"]] = value
        return found

    def without_uid(self) -> set[str]:
        """Return the pods of which an XID error is told, and no uid."""
        return {
            labels["pod"]
            for labels in (dict(pairs) for name, pairs in self.samples if name == _XIDS)
            if not labels.get("pod_uid")
        }


def next_look(port: int, within: float = 15) -> Page:
    """Return the first page after the next look at the GPU: its moment is that of the look."""
    before = Page(port).accounted()
    page: list[Page] = []

    def looked() -> bool:
        page[:] = [Page(port)]
        return page[0].accounted() not in ([], before)

    wait_until(looked, "there is another look at the GPU", within, every=0.02)
    return page[0]


def grown(before: Page, after: Page, quantity: str) -> Mapping[str, Decimal]:
    """Return by how much a quantity grew of each pod, and of nobody by an empty name."""
    old = before.account(quantity)
    return {pod: value - old.get(pod, Decimal(0)) for pod, value in after.account(quantity).items()}
