"""Fields of NVLink 5, of the NVLink fabric and of chip-to-chip links; further link errors."""

from typing import Final

from pipeline.fields.field import Field
from pipeline.fields.link_fields import RECOVERY, REPLAY

_COUNTED: Final = frozenset({"errors", "packets", "bytes", "events"})


def _value(
    name: str,
    number: int,
    about: str,
    dcgm: str,
    *renamed: str,
    unit: str = "errors",
    since: str = "",
) -> Field:
    """Return a field of one of NVML's field values; counts are counters."""
    return Field(
        name,
        unit,
        f"{about}.",
        f"nvmlDeviceGetFieldValues({number})",
        type="counter" if unit in _COUNTED else "gauge",
        group="details",
        dcgm=f"DCGM_FI_DEV_{dcgm}",
        aliases=tuple(f"DCGM_FI_DEV_{each}" for each in renamed),
        dcgm_base=f"DCGM_FI_DEV_{dcgm}_BYTES_PER_SECOND" if unit == "MB/s" else "",
        since=since,
    )


def _newer(name: str, number: int, about: str, names: tuple[str, ...], unit: str) -> Field:
    """Return a field of all NVLinks of a Blackwell or newer GPU.

    Args:
        name: podgpu's name without its beginning.
        number: NVML's id of the field value.
        about: what is counted.
        names: DCGM's names without their beginnings: before 4.6 and since, if it was renamed.
        unit: unit of the value.
    """
    before, *since = names
    return _value(
        f"nvlink_{name}",
        number,
        f"NVLinks of Blackwell and newer, all links together: {about}",
        f"NVLINK_COUNT_{before}",
        *(f"NVLINK_{each}" for each in since),
        unit=unit,
        since="blackwell",
    )


def _fabric(name: str, about: str, unit: str = "code") -> Field:
    return Field(
        f"fabric_{name}",
        unit,
        f"{about}.",
        "nvmlDeviceGetGpuFabricInfoV",
        group="details",
        dcgm=f"DCGM_FI_DEV_FABRIC_{name.upper()}",
        since="hopper",
    )


_NEWER: Final = (
    (
        "transmitted_packets",
        201,
        "packets transmitted",
        ("TX_PACKETS", "TX_PACKET_TOTAL"),
        "packets",
    ),
    ("raw_transmitted_bytes", 202, "bytes transmitted", ("TX_BYTES", "TX_BYTES_TOTAL"), "bytes"),
    ("received_packets", 203, "packets received", ("RX_PACKETS", "RX_PACKET_TOTAL"), "packets"),
    ("raw_received_bytes", 204, "bytes received", ("RX_BYTES", "RX_BYTES_TOTAL"), "bytes"),
    (
        "malformed_packets",
        206,
        "malformed packets received",
        ("RX_MALFORMED_PACKET_ERRORS", "RX_PACKET_MALFORMED_TOTAL"),
        "packets",
    ),
    (
        "overrun_packets",
        207,
        "packets dropped because the buffer was full",
        ("RX_BUFFER_OVERRUN_ERRORS", "RX_PACKET_DROPPED_TOTAL"),
        "packets",
    ),
    (
        "receive_errors",
        208,
        "packets received with errors",
        ("RX_ERRORS", "RX_ERROR_TOTAL"),
        "errors",
    ),
    (
        "remote_receive_errors",
        209,
        "packets received that the other end marked as bad",
        ("RX_REMOTE_ERRORS", "RX_REMOTE_ERROR_TOTAL"),
        "errors",
    ),
    (
        "general_receive_errors",
        210,
        "packets received with a wrong header",
        ("RX_GENERAL_ERRORS", "RX_GENERAL_ERROR_TOTAL"),
        "errors",
    ),
    (
        "integrity_errors",
        211,
        "times that local errors exceeded their threshold",
        ("LOCAL_LINK_INTEGRITY_ERRORS", "INTEGRITY_ERROR_TOTAL"),
        "errors",
    ),
    (
        "transmit_discards",
        212,
        "bad packets not transmitted",
        ("TX_DISCARDS", "TX_DISCARD_TOTAL"),
        "packets",
    ),
    (
        "successful_recoveries",
        213,
        "recoveries that succeeded",
        ("LINK_RECOVERY_SUCCESSFUL_EVENTS", "RECOVERY_SUCCESSFUL_TOTAL"),
        "events",
    ),
    (
        "failed_recoveries",
        214,
        "recoveries that failed",
        ("LINK_RECOVERY_FAILED_EVENTS", "RECOVERY_FAILED_TOTAL"),
        "events",
    ),
    (
        "recoveries",
        215,
        "recoveries that began",
        ("LINK_RECOVERY_EVENTS", "RECOVERY_EVENT_TOTAL"),
        "events",
    ),
    (
        "symbol_errors",
        221,
        "wrong symbols received",
        ("RX_SYMBOL_ERRORS", "RX_SYMBOL_ERROR_TOTAL"),
        "errors",
    ),
    (
        "symbol_error_rate_raw",
        222,
        "rate of wrong symbols, as encoded by NVML",
        ("SYMBOL_BER", "SYMBOL_BER_RAW"),
        "bitmask",
    ),
    (
        "symbol_error_ratio",
        222,
        "wrong symbols as a fraction of all",
        ("SYMBOL_BER_FLOAT", "SYMBOL_BER_RATIO"),
        "ratio",
    ),
    (
        "effective_errors",
        219,
        "errors that correction could not repair",
        ("EFFECTIVE_ERRORS", "EFFECTIVE_ERROR_TOTAL"),
        "errors",
    ),
    (
        "effective_error_rate_raw",
        220,
        "rate of errors after correction, as encoded by NVML",
        ("EFFECTIVE_BER", "EFFECTIVE_BER_RAW"),
        "bitmask",
    ),
    (
        "effective_error_ratio",
        220,
        "errors after correction as a fraction of all bits",
        ("EFFECTIVE_BER_FLOAT", "EFFECTIVE_BER_RATIO"),
        "ratio",
    ),
)
"""Name, NVML's field value, meaning, DCGM's names, unit."""

INTERCONNECTS: tuple[Field, ...] = (
    *(
        _value(
            f"nvlink_dl_{name}_errors",
            number,
            f"NVLink errors of the data link layer over all links: {about}",
            f"NVLINK_ERROR_DL_{name.upper()}",
            f"NVLINK_{renamed}_TOTAL",
            since="hopper",
        )
        for name, number, about, renamed in (
            ("crc", 163, "wrong checksums", "CRC_ERROR"),
            ("recovery", 162, RECOVERY, "RECOVERY"),
            ("replay", 161, REPLAY, "REPLAY"),
        )
    ),
    _value(
        "nvlink_ecc_data_errors",
        160,
        "NVLink errors over all links: data that ECC found to be wrong",
        "NVLINK_ECC_DATA_ERROR_COUNT_TOTAL",
        "NVLINK_ECC_ERROR_TOTAL",
    ),
    *(_newer(*row) for row in _NEWER),
    *(
        _newer(
            f"fec_history_{bin_}",
            235 + bin_,
            f"blocks in which error correction found {bin_} wrong symbols",
            (f"FEC_HISTORY_{bin_}", f"FEC_HISTORY_{bin_}_TOTAL"),
            "events",
        )
        for bin_ in range(16)
    ),
    Field(
        "nvlink_p2p_reachable",
        "bitmask",
        "GPUs of the node that the GPU can reach over NVLink: bit n is 1 if it can reach GPU n.",
        "nvmlDeviceGetP2PStatus",
        group="details",
        dcgm="DCGM_FI_DEV_P2P_NVLINK_STATUS",
        aliases=("DCGM_FI_DEV_NVLINK_P2P_STATUS",),
    ),
    _fabric(
        "manager_status",
        "Registration of the GPU at the fabric of its NVLinks: 0 not supported, 1 not begun, 2 "
        "under way, 3 registered, 4 failed",
    ),
    _fabric(
        "clique_id", "Number of the GPU's clique in the fabric, while it is registered", "number"
    ),
    _fabric("health_mask", "Health of the fabric, as NVML's bit mask", "bitmask"),
    _fabric(
        "health_summary", "Health of the fabric: 0 not supported, 1 good, 2 bad, 3 limited capacity"
    ),
    _value(
        "pcie_correctable_errors",
        173,
        "PCIe errors that the link corrected",
        "PCIE_COUNT_CORRECTABLE_ERRORS",
        "PCIE_CORRECTABLE_ERROR_TOTAL",
    ),
    _value(
        "c2c_links",
        170,
        "Chip-to-chip links to the processor",
        "C2C_LINK_COUNT",
        "C2C_LINK_QUANTITY",
        unit="links",
        since="hopper",
    ),
    *(
        _value(
            f"c2c_{name}",
            number,
            about,
            *(f"C2C_{each}" for each in dcgm.split()),
            unit=unit,
            since="hopper",
        )
        for name, number, about, dcgm, unit in (
            ("link_up", 171, "1 while the chip-to-chip link is up, else 0", "LINK_STATUS", "bool"),
            (
                "max_megabytes_per_second",
                172,
                "Highest rate of a chip-to-chip link, in megabytes per second",
                "MAX_BANDWIDTH",
                "MB/s",
            ),
            (
                "interrupt_errors",
                231,
                "Errors of the chip-to-chip link: wrong checksums",
                "LINK_ERROR_INTR LINK_ERROR_TOTAL",
                "errors",
            ),
            (
                "replay_errors",
                232,
                "Errors of the chip-to-chip link: packets sent again",
                "LINK_ERROR_REPLAY LINK_REPLAY_ERROR_TOTAL",
                "errors",
            ),
            (
                "back_to_back_replay_errors",
                233,
                "Errors of the chip-to-chip link: packets sent again several times",
                "LINK_ERROR_REPLAY_B2B LINK_REPLAY_ERROR_B2B_TOTAL",
                "errors",
            ),
            (
                "power_state",
                234,
                "Power state of the chip-to-chip link: 0 full power, 1 low power",
                "LINK_POWER_STATE LINK_POWER_STATUS",
                "code",
            ),
        )
    ),
)
