"""Cards other than the H100, and links between cards."""

from collections.abc import Mapping
from typing import Any, Final

from tests.fakes.nvml.activity import Gpm
from tests.fakes.nvml.nodes import h100
from tests.fakes.nvml.profiles import MIB
from tests.fakes.nvml.scenario import ALL_ONES_32, Field, Gpu, Number, Ramp

LINKS: Final = 18
_DATA: Final = (138, 139)

_A100: Final[Mapping[str, Number | None]] = {
    "architecture": 7,
    "compute_major": 8,
    "gpu_cores": 6912,
    "memory_total": 81920 * MIB,
    "power_limit": 400_000,
    "power_default_limit": 400_000,
    "power_limit_min": 100_000,
    "power_limit_max": 400_000,
    "enforced_power_limit": 400_000,
    "gpm_supported": 0,
    "pcie_link_gen": 4,
}
_T4: Final[Mapping[str, Number | None]] = {
    "architecture": 6,
    "compute_major": 7,
    "compute_minor": 5,
    "gpu_cores": 2560,
    "memory_total": 15360 * MIB,
    "memory_used": 450 * MIB,
    "memory_reserved": 450 * MIB,
    "memory_temperature": None,
    "power_usage": 13_600,
    "power_limit": 70_000,
    "power_default_limit": 70_000,
    "power_limit_min": 60_000,
    "power_limit_max": 70_000,
    "enforced_power_limit": 70_000,
    "mig_mode_current": None,
    "mig_mode_pending": None,
    "max_mig_count": None,
    "remapped_correctable": None,
    "remapped_uncorrectable": None,
    "remapped_pending": None,
    "remapped_failure": None,
    "retired_single": 0,
    "retired_double": 0,
    "retired_pending": 0,
    "recovery_action": None,
    "gpm_supported": 0,
    "pcie_link_gen": 3,
}


def a100(place: int = 0, **changes: object) -> Gpu:
    """Return an idle A100, with MIG and remapped rows but without GPM."""
    return _card(place, "NVIDIA A100-SXM4-80GB", "692-2G506-0212-002", _A100, changes)


def t4(place: int = 0, **changes: object) -> Gpu:
    """Return an idle T4: retired pages, but no MIG, remapped rows or memory temperature."""
    return _card(place, "Tesla T4", "900-2G183-6300-T01", _T4, changes)


def _card(
    place: int,
    name: str,
    part_number: str,
    own: Mapping[str, Number | None],
    changes: Mapping[str, object],
) -> Gpu:
    values = changes.get("values", {})
    assert isinstance(values, Mapping)
    gpm: dict[int, Gpm | None] = dict.fromkeys(range(1, 100))
    texts = {"name": name, "part_number": part_number}
    return h100(place, **{**texts, "gpm": gpm, **changes, "values": {**own, **values}})


def linked(
    *,
    sent: Number = 1000,
    received: Number = 2000,
    links: int = LINKS,
    old: bool = False,
    down: int | None = None,
) -> dict[str, Any]:
    """Return the additional values and fields of a card with NVLinks, for `h100` and the others.

    Args:
        sent: KiB sent over each link: field 138 of each link, and of all links together.
        received: KiB received, likewise field 139.
        links: the number of links.
        old: whether the card is one before Hopper, which has error totals of all links.
        down: the number of a link that is down.
    """
    values: dict[str, Number | None] = {"nvlinks": links}
    fields: dict[int | tuple[int, int], Field] = {}
    for number, each in zip(_DATA, (sent, received), strict=True):
        for link in range(links):
            fields[number, link] = Field(each, "ull")
        fields[number, ALL_ONES_32] = Field(_times(each, links), "ull")
    for link in range(links):
        values[f"nvlink_state_{link}"] = int(link != down)
        for counter in range(4):
            values[f"nvlink_error_{link}_{counter}"] = 10 * counter + link
    if old:
        fields |= {number: Field(number, "ull") for number in (38, 45, 52, 59)}
    else:
        fields |= {(number, ALL_ONES_32): Field(number, "ull") for number in (161, 162, 163)}
    return {"values": values, "fields": fields}


def _times(number: Number, factor: int) -> Number:
    if isinstance(number, Ramp):
        return Ramp(number.start * factor, number.rate * factor)
    return number * factor
