"""Fields of PCIe and NVLink."""

from typing import Final

from pipeline.fields.field import Field, Group, Tier

NVLINKS: Final = 18
"""Number of NVLinks that have their own DCGM names."""


_DCGM_RATE: Final = 1000 * 1024
"""Divisor from bytes per second to DCGM's unit, which is 1000 KiB per second."""


_FLIT: Final = "flow-control digits with a wrong checksum"
_DATA: Final = "data packets with a wrong checksum"
REPLAY: Final = "packets sent again"
RECOVERY: Final = "recoveries of a link"

_KINDS: Final = (
    ("crc_flit", _FLIT, "32 to 37, 96 to 101, 163", NVLINKS),
    # Newer GPUs have more links, and do not count these errors.
    ("crc_data", _DATA, "39 to 44, 102 to 107", 12),
    ("replay", REPLAY, "46 to 51, 108 to 113, 161", NVLINKS),
    ("recovery", RECOVERY, "53 to 58, 114 to 119, 162", NVLINKS),
)
"""Kinds of errors of single links: podgpu's name, meaning, NVML's field values, number of links."""


def _bandwidth(
    name: str, links: str, dcgm: str, *, group: Group = "links", dcgm_1x: str = ""
) -> Field:
    link = "" if dcgm == "TOTAL" else f"_{dcgm}"
    return Field(
        f"nvlink{name}_bandwidth_bytes_per_second",
        "bytes/s",
        f"Data sent and received over {links} per second, between two readings.",
        "nvmlDeviceGetFieldValues(138, 139)",
        group=group,
        dcgm=f"DCGM_FI_DEV_NVLINK_BANDWIDTH_{dcgm}",
        aliases=(f"DCGM_FI_DEV_NVLINK_THROUGHPUT_{dcgm}",),
        dcgm_base=f"DCGM_FI_DEV_NVLINK_THROUGHPUT{link}_BYTES_PER_SECOND",
        dcgm_1x=dcgm_1x,
        dcgm_divisor=_DCGM_RATE,
        dcgm_unit="1000 KiB/s",
        since="ampere",
    )


def _one_way(direction: str, short: str, name: str, links: str, dcgm: str) -> Field:
    return Field(
        f"nvlink{name}_{direction}_bandwidth_bytes_per_second",
        "bytes/s",
        f"Data {direction} over {links} per second, between two readings.",
        f"nvmlDeviceGetFieldValues({138 if short == 'TX' else 139})",
        group="details",
        dcgm=f"DCGM_FI_DEV_NVLINK_{short}_BANDWIDTH_{dcgm}",
        aliases=(f"DCGM_FI_DEV_NVLINK_{short}_THROUGHPUT_{dcgm}",),
        dcgm_divisor=_DCGM_RATE,
        dcgm_unit="1000 KiB/s",
        since="ampere",
    )


def _link_errors(name: str, about: str, numbers: str, link: int) -> Field:
    dcgm = f"DCGM_FI_DEV_NVLINK_{name.upper()}_ERROR"
    return Field(
        f"nvlink_{link}_{name}_errors",
        "errors",
        f"Errors of NVLink {link}: {about}.",
        f"nvmlDeviceGetFieldValues({numbers})",
        type="counter",
        group="details",
        dcgm=f"{dcgm}_COUNT_L{link}",
        aliases=(f"{dcgm}_L{link}_TOTAL",),
    )


def _pcie_link(name: str, about: str, call: str, tier: Tier) -> Field:
    return Field(
        f"pcie_{name}",
        "lanes" if name.endswith("width") else "number",
        f"{about}.",
        f"nvmlDeviceGet{call}",
        tier=tier,
        group="details",
        dcgm=f"DCGM_FI_DEV_PCIE_{name.upper()}",
    )


def _sum(direction: str, number: int) -> Field:
    return Field(
        f"nvlink_{direction}_bytes",
        "bytes",
        f"Data {direction} over all NVLinks since the driver was loaded.",
        f"nvmlDeviceGetFieldValues({number})",
        type="counter",
        group="own",
        since="ampere",
    )


def _pcie(direction: str, verb: str, gpm: int, short: str) -> Field:
    return Field(
        f"pcie_{direction}_bytes",
        "bytes",
        f"Bytes {verb} over PCIe since podgpu started to watch the GPU, headers included.",
        f"nvmlGpmMetricsGet({gpm}), summed up",
        type="counter",
        group="own",
        aliases=(f"DCGM_FI_PROF_PCIE_{short}_BYTES", f"DCGM_FI_PROF_PCIE_{short}_BYTES_TOTAL"),
        dcgm_1x=f"dcgm_fi_prof_pcie_{short.lower()}_bytes",
        otel="hw.gpu.io",
        otel_attrs=(("network.io.direction", "transmit" if short == "TX" else "receive"),),
        since="hopper",
    )


def _errors(name: str, about: str, number: int, dcgm_1x: str = "") -> Field:
    dcgm = f"DCGM_FI_DEV_NVLINK_{name.upper()}_ERROR"
    return Field(
        f"nvlink_{name}_errors",
        "errors",
        f"NVLink errors over all links: {about}.",
        f"nvmlDeviceGetFieldValues({number})",
        type="counter",
        group="links",
        dcgm=f"{dcgm}_COUNT_TOTAL",
        aliases=(f"{dcgm}_TOTAL",),
        dcgm_1x=f"dcgm_nvlink_{dcgm_1x or name}_error_count_total",
        otel="hw.errors",
        otel_attrs=(("error.type", f"nvlink_{name}"),),
    )


LINKS: tuple[Field, ...] = (
    Field(
        "pcie_replays",
        "packets",
        "PCIe packets that were sent again.",
        "nvmlDeviceGetPcieReplayCounter",
        type="counter",
        dcgm="DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        aliases=("DCGM_FI_DEV_PCIE_REPLAY_TOTAL",),
        dcgm_1x="dcgm_pcie_replay_counter",
        otel="hw.errors",
        otel_attrs=(("error.type", "pcie_replay"),),
    ),
    _pcie("transmitted", "sent", 20, "TX"),
    _pcie("received", "received", 21, "RX"),
    _bandwidth("", "all NVLinks", "TOTAL", group="standard", dcgm_1x="dcgm_nvlink_bandwidth_total"),
    _sum("transmitted", 138),
    _sum("received", 139),
    Field(
        "nvlink_bytes",
        "bytes",
        "Data sent and received over one NVLink since the driver was loaded, by link and "
        "direction.",
        "nvmlDeviceGetFieldValues(138, 139)",
        type="counter",
        group="links",
        attrs=("direction", "link"),
        since="ampere",
    ),
    Field(
        "nvlink_up",
        "bool",
        "1 while the NVLink is up, else 0, by link.",
        "nvmlDeviceGetNvLinkState",
        group="links",
        aliases=("DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVLINK_LINK_STATUS"),
        attrs=("link",),
    ),
    _errors("crc_flit", _FLIT, 38, dcgm_1x="flit_crc"),
    _errors("crc_data", _DATA, 45, dcgm_1x="data_crc"),
    _errors("replay", REPLAY, 52),
    _errors("recovery", RECOVERY, 59),
    *(_bandwidth(f"_{link}", f"NVLink {link}", f"L{link}") for link in range(NVLINKS)),
    _one_way("transmitted", "TX", "", "all NVLinks", "TOTAL"),
    _one_way("received", "RX", "", "all NVLinks", "TOTAL"),
    *(
        _one_way(direction, short, f"_{link}", f"NVLink {link}", f"L{link}")
        for direction, short in (("transmitted", "TX"), ("received", "RX"))
        for link in range(NVLINKS)
    ),
    *(
        _link_errors(name, about, numbers, link)
        for name, about, numbers, links in _KINDS
        for link in range(links)
    ),
    _pcie_link("link_gen", "Generation of the PCIe link now", "CurrPcieLinkGeneration", Tier.SLOW),
    _pcie_link("link_width", "Lanes of the PCIe link now", "CurrPcieLinkWidth", Tier.SLOW),
    _pcie_link(
        "max_link_gen", "Highest generation of the PCIe link", "MaxPcieLinkGeneration", Tier.ONCE
    ),
    _pcie_link("max_link_width", "Most lanes of the PCIe link", "MaxPcieLinkWidth", Tier.ONCE),
)
