"""Fields of the board: clocks, temperatures, power, and their limits."""

from typing import Final

from pipeline.fields.field import Field, Tier


def _clock(name: str, dcgm: str, about: str) -> Field:
    return Field(
        f"{name}_clock_mhz",
        "MHz",
        f"Clock of the {about}, in MHz.",
        "nvmlDeviceGetClockInfo",
        tier=Tier.FAST,
        dcgm=f"DCGM_FI_DEV_{dcgm}_CLOCK",
        dcgm_base=f"DCGM_FI_DEV_{name.upper()}_CLOCK_HERTZ",
        dcgm_1x=f"dcgm_{name}_clock",
    )


def _further_clock(
    name: str, dcgm: str, about: str, call: str, *, tier: Tier, base: str = ""
) -> Field:
    return Field(
        f"{name}_clock_mhz",
        "MHz",
        f"{about}, in MHz.",
        call,
        tier=tier,
        group="details",
        dcgm=f"DCGM_FI_DEV_{dcgm}_CLOCK",
        dcgm_base=f"DCGM_FI_DEV_{base or dcgm}_CLOCK_HERTZ",
    )


def _max_clock(name: str, number: int, dcgm: str, about: str) -> Field:
    about = f"Highest clock of the {about}"
    call = f"nvmlDeviceGetMaxClockInfo({number})"
    base = f"{name.upper()}_MAX"
    return _further_clock(f"max_{name}", f"MAX_{dcgm}", about, call, tier=Tier.ONCE, base=base)


def _application_clock(name: str, number: int, dcgm: str, about: str) -> Field:
    about = f"Clock of the {about} that is set for applications"
    call = f"nvmlDeviceGetApplicationsClock({number})"
    base = f"{name.upper()}_APP"
    return _further_clock(
        f"application_{name}", f"APP_{dcgm}", about, call, tier=Tier.SLOW, base=base
    )


def _operating_limit(name: str, number: int, about: str, dcgm: str, renamed: str) -> Field:
    return Field(
        f"temperature_{name}_max_operating_celsius",
        "celsius",
        f"Temperature up to which {about} may operate, in degrees Celsius.",
        f"nvmlDeviceGetTemperatureThreshold({number})",
        tier=Tier.ONCE,
        group="details",
        dcgm=f"DCGM_FI_DEV_{dcgm}_MAX_OP_TEMP",
        aliases=(f"DCGM_FI_DEV_{renamed}_MAX_OP_TEMP_CELSIUS",),
    )


def _smoothing(number: int, name: str, unit: str, about: str) -> Field:
    dcgm = f"DCGM_FI_DEV_PWR_SMOOTHING_{name.upper()}"
    # Renamed in DCGM 4.6: the two in watts, and the number of profiles.
    since = f"{dcgm}_WATTS" if unit == "watts" else dcgm.replace("MAX_NUM_PRESET", "MAX_PRESET")
    return Field(
        f"power_smoothing_{name}",
        unit,
        f"Power smoothing: {about}.",
        f"nvmlDeviceGetFieldValues({number})",
        group="details",
        dcgm=dcgm,
        aliases=() if since == dcgm else (since,),
        since="blackwell",
    )


def _power_limit(name: str, number: int, about: str, dcgm: str, renamed: str) -> Field:
    return Field(
        f"power_limit{name}_watts",
        "watts",
        f"{about}, in watts.",
        f"nvmlDeviceGetFieldValues({number})",
        group="limits",
        dcgm=f"DCGM_FI_DEV_POWER_MGMT_LIMIT{dcgm}",
        aliases=(f"DCGM_FI_DEV_BOARD_POWER_LIMIT_{renamed}_WATTS",),
    )


def _temperature_limit(name: str, number: int, about: str, otel: str) -> Field:
    return Field(
        f"temperature_{name}_celsius",
        "celsius",
        f"Temperature at which the GPU {about}, in degrees Celsius.",
        f"nvmlDeviceGetTemperatureThreshold({number})",
        tier=Tier.ONCE,
        group="limits",
        dcgm=f"DCGM_FI_DEV_{name.upper()}_TEMP",
        aliases=(f"DCGM_FI_DEV_GPU_TEMP_{name.upper()}_CELSIUS",),
        otel="hw.temperature.limit",
        otel_attrs=(("hw.limit_type", otel),),
    )


def _temperature(name: str, about: str, call: str) -> Field:
    dcgm = f"DCGM_FI_DEV_{name.upper()}_TEMP"
    return Field(
        f"{name}_temperature_celsius",
        "celsius",
        f"Temperature of {about}, in degrees Celsius.",
        call,
        tier=Tier.FAST,
        dcgm=dcgm,
        aliases=(f"{dcgm}_CELSIUS",),
        dcgm_1x=f"dcgm_{name}_temp",
        otel="hw.temperature",
        otel_attrs=(("hw.sensor_location", name),),
    )


_SMOOTHING: Final = (
    ("enabled", "bool", "1 while it is on, else 0"),
    ("priv_lvl", "number", "the privilege level"),
    ("imm_ramp_down_enabled", "bool", "1 if power is ramped down immediately, else 0"),
    ("applied_tmp_ceil", "watts", "the ceiling that is applied, in watts"),
    ("applied_tmp_floor", "watts", "the floor that is applied, in watts"),
    ("max_percent_tmp_floor_setting", "percent", "the highest floor that can be set, in percent"),
    ("min_percent_tmp_floor_setting", "percent", "the lowest floor that can be set, in percent"),
    (
        "hw_circuitry_percent_lifetime_remaining",
        "percent",
        "the remaining lifetime of its circuit, in percent",
    ),
    ("max_num_preset_profiles", "profiles", "the number of profiles"),
    ("profile_percent_tmp_floor", "percent", "the floor of profile 0, in percent"),
    ("profile_ramp_up_rate", "mW/s", "the ramp-up rate of profile 0, in milliwatts per second"),
    (
        "profile_ramp_down_rate",
        "mW/s",
        "the ramp-down rate of profile 0, in milliwatts per second",
    ),
    (
        "profile_ramp_down_hyst_val",
        "milliseconds",
        "the hysteresis of profile 0 before it ramps down, in milliseconds",
    ),
    ("active_preset_profile", "number", "the number of the active profile"),
    (
        "admin_override_percent_tmp_floor",
        "percent",
        "the floor that the administrator set, in percent",
    ),
    (
        "admin_override_ramp_up_rate",
        "mW/s",
        "the ramp-up rate that the administrator set, in milliwatts per second",
    ),
    (
        "admin_override_ramp_down_rate",
        "mW/s",
        "the ramp-down rate that the administrator set, in milliwatts per second",
    ),
    (
        "admin_override_ramp_down_hyst_val",
        "milliseconds",
        "the hysteresis that the administrator set, in milliseconds",
    ),
)
"""Name, unit and meaning, in the order of NVML's field values from 251 on."""

BOARDS: tuple[Field, ...] = (
    _clock("sm", "SM", "streaming multiprocessors"),
    _clock("memory", "MEM", "device memory"),
    Field(
        "performance_state",
        "state",
        "Performance state, from 0 (highest clocks) to 15 (lowest).",
        "nvmlDeviceGetPerformanceState",
        tier=Tier.FAST,
        group="own",
        dcgm="DCGM_FI_DEV_PSTATE",
        aliases=("DCGM_FI_DEV_GPU_PSTATE",),
    ),
    _temperature("memory", "the device memory", "nvmlDeviceGetFieldValues(82)"),
    _temperature("gpu", "the GPU's core", "nvmlDeviceGetTemperature"),
    Field(
        "power_watts",
        "watts",
        "Power draw of the whole board, in watts; a mean over one second on Ampere and newer.",
        "nvmlDeviceGetPowerUsage",
        tier=Tier.FAST,
        dcgm="DCGM_FI_DEV_POWER_USAGE",
        aliases=("DCGM_FI_DEV_BOARD_POWER_WATTS",),
        dcgm_1x="dcgm_power_usage",
        otel="hw.power",
    ),
    Field(
        "energy_millijoules",
        "millijoules",
        "Energy that the board has drawn since the driver was loaded, in millijoules.",
        "nvmlDeviceGetTotalEnergyConsumption",
        type="counter",
        dcgm="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        dcgm_base="DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
        dcgm_1x="dcgm_total_energy_consumption",
        otel="hw.energy",
        otel_divisor=1000,
    ),
    Field(
        "power_instant_watts",
        "watts",
        "Power draw of the whole board at the moment of the reading, in watts.",
        "nvmlDeviceGetFieldValues(186)",
        tier=Tier.FAST,
        group="own",
        aliases=("DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS"),
    ),
    _power_limit("", 192, "Power limit that is configured", "", "REQUESTED"),
    Field(
        "power_limit_enforced_watts",
        "watts",
        "Power limit that is enforced: the lowest of all limits, in watts.",
        "nvmlDeviceGetEnforcedPowerLimit",
        group="limits",
        dcgm="DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        aliases=("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",),
    ),
    _power_limit("_default", 189, "Power limit that the board has by default", "_DEF", "DEFAULT"),
    _power_limit("_min", 187, "Lowest power limit that can be set", "_MIN", "MIN"),
    _power_limit("_max", 188, "Highest power limit that can be set", "_MAX", "MAX"),
    Field(
        "fan_speed_percent",
        "percent",
        "Intended speed of the fastest fan, in percent of its maximum.",
        "nvmlDeviceGetFanSpeed_v2",
        group="limits",
        dcgm="DCGM_FI_DEV_FAN_SPEED",
        dcgm_base="DCGM_FI_DEV_FAN_SPEED_RATIO",
        otel="hw.fan.speed_ratio",
        otel_divisor=100,
    ),
    _temperature_limit("slowdown", 1, "reduces its clocks", "high.degraded"),
    _temperature_limit("shutdown", 0, "shuts down", "high.critical"),
    _further_clock(
        "video",
        "VIDEO",
        "Clock of the video encoders and decoders",
        "nvmlDeviceGetClockInfo(3)",
        tier=Tier.FAST,
    ),
    _application_clock("sm", 0, "SM", "streaming multiprocessors"),
    _application_clock("memory", 2, "MEM", "device memory"),
    _max_clock("sm", 1, "SM", "streaming multiprocessors"),
    _max_clock("memory", 2, "MEM", "device memory"),
    _max_clock("video", 3, "VIDEO", "video encoders and decoders"),
    _operating_limit("gpu", 3, "the GPU", "GPU", "GPU"),
    _operating_limit("memory", 2, "the device memory", "MEM", "MEMORY"),
    Field(
        "temperature_margin_celsius",
        "celsius",
        "By how much the GPU is below the temperature at which it reduces its clocks, in degrees "
        "Celsius.",
        "nvmlDeviceGetMarginTemperature",
        group="details",
        dcgm="DCGM_FI_DEV_GPU_TEMP_LIMIT",
        aliases=("DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS",),
    ),
    *(
        _smoothing(number, name, unit, about)
        for number, (name, unit, about) in enumerate(_SMOOTHING, 251)
    ),
)
