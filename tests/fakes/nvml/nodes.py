"""Scenarios of nodes with H100 cards."""

from collections.abc import Mapping

from tests.fakes.nvml import profiles
from tests.fakes.nvml.scenario import Gpu, Mig, Number, Scenario


def h100(place: int = 0, **changes: object) -> Gpu:
    """Return an idle H100 for this place of a node."""
    return Gpu(
        **{  # type: ignore[arg-type]
            "uuid": f"GPU-{place:08x}-5eed-4a5e-9c0d-10{place:010d}",
            "minor": place,
            "bus_id": f"00000000:00:{6 + place:02X}.0",
            "serial": f"{1650000000000 + place}",
            **changes,
        }
    )


def h100s(count: int, **changes: object) -> Scenario:
    """Return a node of idle H100s on NVSwitches, without MIG, all with the same changes."""
    link: dict[str, Number | None] = {f"nvlink_state_{n}": 1 for n in range(18)}
    link |= {f"nvlink_remote_type_{n}": 2 for n in range(18)}
    values = changes.pop("values", {})
    assert isinstance(values, Mapping)
    merged = {**(link if count > 1 else {}), **values}
    return Scenario(gpus=[h100(at, values=merged, **changes) for at in range(count)])


def slices(place: int, *names: str, **changes: object) -> list[Mig]:
    """Return MIG devices of a GPU, each a GPU instance, with numbers like the driver's."""
    start = 0
    made = []
    for at, name in enumerate(names):
        gi = 7 + at
        uuid = f"MIG-{place:08x}-5eed-4a5e-9c0d-{gi:012d}"
        made.append(
            Mig(
                gi=gi,
                profile=name,
                uuid=uuid,
                placement_start=start,
                **changes,  # type: ignore[arg-type]
            )
        )
        start += profiles.split_profile(name)[0].slices
    return made


def mig_node() -> Scenario:
    """Return a node of eight H100s with seven 1g.10gb instances each."""
    return Scenario(gpus=[h100(at, mig=slices(at, *["1g.10gb"] * 7)) for at in range(8)])


def mixed() -> Scenario:
    """Return four H100s, two of them with MIG. Minor numbers descend with the index."""
    cut = {1: slices(1, "3g.40gb", "2g.20gb", "1g.10gb"), 3: slices(3, "7g.80gb")}
    return Scenario(gpus=[h100(at, minor=3 - at, mig=cut.get(at)) for at in range(4)])
