"""Fields of the board: clocks, temperatures, power, and their limits."""

from pipeline.fields.field import Field, Tier


def _clock(name: str, dcgm: str, about: str) -> Field:
    return Field(
        f"{name}_clock_mhz",
        "MHz",
        f"Clock of the {about}, in MHz.",
        "nvmlDeviceGetClockInfo",
        tier=Tier.FAST,
        dcgm=f"DCGM_FI_DEV_{dcgm}_CLOCK",
        dcgm_1x=f"dcgm_{name}_clock",
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
        otel="hw.fan.speed_ratio",
        otel_divisor=100,
    ),
    _temperature_limit("slowdown", 1, "reduces its clocks", "high.degraded"),
    _temperature_limit("shutdown", 0, "shuts down", "high.critical"),
)
