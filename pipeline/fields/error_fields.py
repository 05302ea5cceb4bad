"""Fields of errors and health: XID errors, throttling, violations, recovery."""

from pipeline.fields.field import Field, Tier


def _violation(name: str, cause: str, number: int, dcgm: str) -> Field:
    return Field(
        f"violation_{name}_nanoseconds",
        "nanoseconds",
        f"Time during which the clocks were reduced because of {cause}, in nanoseconds.",
        f"nvmlDeviceGetFieldValues({number})",
        type="counter",
        group="health",
        dcgm=f"DCGM_FI_DEV_{dcgm}_VIOLATION",
        dcgm_base=f"DCGM_FI_DEV_GPU_{dcgm.removeprefix('BOARD_')}_THROTTLE_SECONDS_TOTAL",
        dcgm_1x=f"dcgm_{dcgm.lower()}_violation",
    )


def _total_violation(name: str, about: str, number: int) -> Field:
    return Field(
        f"violation_total_{name}_clocks_nanoseconds",
        "nanoseconds",
        f"Time during which the clocks were below {about}, for any reason, in nanoseconds.",
        f"nvmlDeviceGetFieldValues({number})",
        type="counter",
        group="details",
        dcgm=f"DCGM_FI_DEV_TOTAL_{name.upper()}_CLOCKS_VIOLATION",
        dcgm_base=f"DCGM_FI_DEV_GPU_{name.upper()}_THROTTLE_SECONDS_TOTAL",
    )


def _clock_reason(name: str, number: int, about: str) -> Field:
    return Field(
        f"clock_reason_{name}_nanoseconds",
        "nanoseconds",
        f"Time during which the driver reduced the clocks {about}, in nanoseconds.",
        f"nvmlDeviceGetFieldValues({number})",
        type="counter",
        group="details",
        dcgm=f"DCGM_FI_DEV_CLOCKS_EVENT_REASON_{name.upper()}_NS",
    )


FAULTS: tuple[Field, ...] = (
    Field(
        "gpu_up",
        "bool",
        "1 while the GPU responds to podgpu's calls; 0 if it is lost, hangs or is no longer "
        "enumerated, or if the driver is missing or hangs.",
        "nvmlDeviceGetMemoryInfo_v2",
        tier=Tier.DERIVED,
        group="own",
        otel="hw.status",
    ),
    Field(
        "xid_last",
        "code",
        "Code of the last XID error since podgpu started; 0 if there was none.",
        "nvmlEventSetWait",
        tier=Tier.EVENT,
        dcgm="DCGM_FI_DEV_XID_ERRORS",
        aliases=("DCGM_FI_DEV_XID_ERROR",),
        dcgm_1x="dcgm_xid_errors",
    ),
    Field(
        "xid_errors",
        "errors",
        "XID errors since podgpu started, by code; common codes start at 0.",
        "nvmlEventSetWait",
        type="counter",
        tier=Tier.EVENT,
        group="own",
        aliases=("DCGM_EXP_XID_ERRORS_TOTAL",),
        attrs=("xid",),
        otel="hw.errors",
    ),
    Field(
        "xid_last_seen_timestamp_seconds",
        "seconds",
        "Time of the last XID error of this code, in Unix time; no sample for codes without error.",
        "nvmlEventSetWait",
        tier=Tier.EVENT,
        group="own",
        attrs=("xid",),
    ),
    Field(
        "clock_throttle_reasons",
        "bitmask",
        "Reasons why the clocks are reduced, as NVML's bit mask.",
        "nvmlDeviceGetCurrentClocksEventReasons",
        tier=Tier.FAST,
        group="own",
        dcgm="DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        aliases=("DCGM_FI_DEV_CLOCKS_EVENT_REASONS",),
    ),
    Field(
        "clock_throttle_active",
        "bool",
        "1 while the clocks are reduced for this reason, else 0.",
        "nvmlDeviceGetCurrentClocksEventReasons",
        tier=Tier.FAST,
        group="own",
        attrs=("reason",),
    ),
    _violation("power", "power", 74, "POWER"),
    _violation("thermal", "temperature", 75, "THERMAL"),
    _violation("sync_boost", "sync boost", 76, "SYNC_BOOST"),
    _violation("board_limit", "board limits", 77, "BOARD_LIMIT"),
    _violation("low_utilization", "low utilisation", 78, "LOW_UTIL"),
    _violation("reliability", "reliability", 79, "RELIABILITY"),
    Field(
        "clock_events_in_window",
        "samples",
        "Samples within the window in which the clocks were reduced for this reason.",
        "nvmlDeviceGetCurrentClocksEventReasons",
        tier=Tier.FAST,
        group="health",
        dcgm="DCGM_EXP_CLOCK_EVENTS_COUNT",
        attrs=("clock_event", "window_size_in_ms"),
    ),
    Field(
        "clock_events",
        "events",
        "How often the clocks began to be reduced for this reason since podgpu started, in "
        "podgpu's samples; a reason that is active in the first sample does not count.",
        "nvmlDeviceGetCurrentClocksEventReasons",
        type="counter",
        tier=Tier.FAST,
        group="health",
        dcgm="DCGM_EXP_CLOCK_EVENTS_TOTAL",
        attrs=("clock_event",),
    ),
    Field(
        "xid_errors_in_window",
        "errors",
        "XID errors within the window, by code; 0 without a code before the first.",
        "nvmlEventSetWait",
        tier=Tier.EVENT,
        group="health",
        dcgm="DCGM_EXP_XID_ERRORS_COUNT",
        attrs=("xid", "window_size_in_ms"),
    ),
    Field(
        "p2p_status",
        "code",
        "Whether the GPU can reach its peer over NVLink: 0 if it can, else a code of the reason.",
        "nvmlDeviceGetP2PStatus",
        group="health",
        dcgm="DCGM_EXP_P2P_STATUS",
        attrs=("peer_gpu", "link_status"),
    ),
    Field(
        "recovery_action",
        "code",
        "Action that the driver requests to recover the GPU: 0 none, 1 reset, 2 reboot, 3 "
        "drain of its peers, 4 drain and reset; newer drivers may report more.",
        "nvmlDeviceGetFieldValues(230)",
        group="own",
        aliases=("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GPU_RECOVERY_ACTION"),
        since="hopper",
    ),
    _total_violation("app", "those that are set for applications", 80),
    _total_violation("base", "the base clocks", 81),
    _clock_reason("sw_power_cap", 74, "to stay within the power limit"),
    _clock_reason("sync_boost", 76, "to those of the slowest GPU of a sync boost group"),
    _clock_reason("sw_therm_slowdown", 269, "to stay below the highest operating temperature"),
    _clock_reason("hw_therm_slowdown", 270, "to a half or less because of the temperature"),
    _clock_reason(
        "hw_power_brake_slowdown", 271, "to a half or less because the power supply asked for it"
    ),
)
