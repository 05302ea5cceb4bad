"""Fields of PCIe and NVLink."""

from typing import Final

from pipeline.fields.field import Field, Group

NVLINKS: Final = 18
"""Number of NVLinks that have their own DCGM names."""


_DCGM_RATE: Final = 1000 * 1024
"""Divisor from bytes per second to DCGM's unit, which is 1000 KiB per second."""


def _bandwidth(
    name: str, links: str, dcgm: str, *, group: Group = "links", dcgm_1x: str = ""
) -> Field:
    return Field(
        f"nvlink{name}_bandwidth_bytes_per_second",
        "bytes/s",
        f"Data sent and received over {links} per second, between two readings.",
        "nvmlDeviceGetFieldValues(138, 139)",
        group=group,
        dcgm=f"DCGM_FI_DEV_NVLINK_BANDWIDTH_{dcgm}",
        aliases=(f"DCGM_FI_DEV_NVLINK_THROUGHPUT_{dcgm}",),
        dcgm_1x=dcgm_1x,
        dcgm_divisor=_DCGM_RATE,
        dcgm_unit="1000 KiB/s",
        since="ampere",
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
        attrs=("link",),
    ),
    _errors("crc_flit", "flow-control digits with a wrong checksum", 38, dcgm_1x="flit_crc"),
    _errors("crc_data", "data packets with a wrong checksum", 45, dcgm_1x="data_crc"),
    _errors("replay", "packets sent again", 52),
    _errors("recovery", "recoveries of a link", 59),
    *(_bandwidth(f"_{link}", f"NVLink {link}", f"L{link}") for link in range(NVLINKS)),
)
