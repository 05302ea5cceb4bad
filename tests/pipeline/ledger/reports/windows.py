"""Usage windows of a ledger: a fixed one, and a hypothesis strategy for any."""

from collections.abc import Iterable
from typing import Final

from hypothesis import strategies as st

from pipeline.model import PartialRef
from pipeline.model.ledger_usage import ContainerIdentity, DeviceTotal, Gap, UsageRow, UsageWindow

NS: Final = 10**9
HOUR: Final = 3600 * NS
START: Final = 1_800_000_000 * NS
"""2027-01-15 08:00 UTC."""

GPUS: Final = ("GPU-0", "GPU-1")
MODEL: Final = "NVIDIA H100 80GB HBM3"


def identity(
    pod: str,
    namespace: str = "ml",
    container: str = "main",
    uid: str | None = None,
    owner: tuple[str, str] = ("", ""),
    **labels: str,
) -> ContainerIdentity:
    subject = PartialRef(namespace, pod, container, f"u-{pod}" if uid is None else uid)
    return ContainerIdentity(subject, *owner, tuple(sorted(labels.items())))


def usage_row(  # noqa: PLR0917 - as a row of a table
    device: str,
    container: ContainerIdentity | None,
    held: float,
    busy: float | None,
    kwh: float | None,
    holdings: int = 1,
    contest: tuple[float, float] | None = None,
) -> UsageRow:
    """Return a row, from hours and kilowatt hours; `contest` is contested and switching hours."""
    contested, switching = (None,) * 2 if contest is None else (round(h * HOUR) for h in contest)
    return UsageRow(
        device,
        container,
        round(held * HOUR),
        None if busy is None else round(busy * HOUR),
        None if kwh is None else round(kwh * 3_600_000_000),
        holdings if container is not None else 0,
        contested_ns=contested,
        switching_ns=switching,
    )


def window(
    rows: Iterable[UsageRow],
    *,
    names: dict[str, str] | None = None,
    gaps: Iterable[Gap] = (),
    hours: int = 24,
    node: str = "gpu-node-1",
) -> UsageWindow:
    """Return a window in which the totals of each device are the sums of its rows."""
    found = tuple(sorted(rows, key=lambda one: (one.device, one.container is None)))
    stated = tuple(gaps)
    totals = tuple(
        DeviceTotal(
            device,
            (names or {}).get(device, MODEL),
            sum(one.held_ns for one in found if one.device == device),
            sum(gap.end_ns - gap.start_ns for gap in stated if gap.device == device),
            _sum([one.busy_ns for one in found if one.device == device]),
            _sum([one.energy_mj for one in found if one.device == device]),
        )
        for device in dict.fromkeys(one.device for one in found)
    )
    return UsageWindow(node, START, START + hours * HOUR, found, totals, stated)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def day() -> UsageWindow:
    """Return the window of two GPUs over a day, with every case that a report distinguishes."""
    first, second = GPUS
    job = ("Job", "train")
    return window(
        [
            usage_row(first, identity("train-0", owner=job, team="vision"), 12, 11.5, 7.25, 2),
            usage_row(second, identity("train-1", owner=job, team="vision"), 10.5, 9.75, 6.125),
            usage_row(
                second,
                identity("notebook-7c9d5f6b4-x2x4z", "lab", "jupyter", team="nlp"),
                8,
                0.02,
                1,
            ),
            usage_row(first, identity("shell", "lab", uid="u-1"), 1, None, 0.25),
            usage_row(first, identity("shell", "lab", uid="u-2"), 0.5, 0.25, 0.125),
            usage_row(first, identity("", "", uid="u-unnamed"), 0.0001, 0.00005, 0.00001),
            usage_row(second, identity("greedy", owner=("Deployment", "greedy")), 0.25, 1, 0.5),
            usage_row(first, None, 10.25, 0.5, 2),
            usage_row(second, None, 5, 0.1, 0.75),
        ],
        gaps=[
            Gap(first, START + HOUR, START + HOUR + 600 * NS, "down"),
            Gap(second, START + HOUR, START + HOUR + 603 * NS, "down"),
            Gap(first, START + 2 * HOUR, START + 2 * HOUR + 30 * NS, "down"),
            Gap(first, START + 9 * HOUR, START + 9 * HOUR + 120 * NS, "blind"),
        ],
    )


# Few values, so that rows fall into the same groups.
_names = st.sampled_from(["", "a", "b"])
_whose = st.builds(
    ContainerIdentity,
    st.builds(PartialRef, _names, _names, st.sampled_from(["main", "side"]), _names),
    st.sampled_from(["", "Job"]),
    _names,
    st.sampled_from([(), (("team", ""),), (("team", "x"),), (("team", "x"), ("tier", "y"))]),
)
_amount = st.integers(0, 10**18)
_maybe = st.none() | _amount
DEVICES: Final = ("GPU-0", "GPU-1", "MIG-0", "MIG-1")
NAMES: Final = {"GPU-0": MODEL, "GPU-1": "", "MIG-0": f"{MODEL} 2g.20gb", "MIG-1": ""}

windows: st.SearchStrategy[UsageWindow] = st.lists(
    st.builds(
        UsageRow,
        st.sampled_from(DEVICES),
        st.none() | _whose,
        _amount,
        _maybe,
        _maybe,
        st.integers(0, 5),
    ),
    max_size=12,
).map(lambda rows: window(rows, names=NAMES))
