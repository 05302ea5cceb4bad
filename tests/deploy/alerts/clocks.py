"""Alerts about reduced clocks."""

from collections.abc import Mapping

from tests.deploy.alerts.case import NODE, UUID, Case, device, gpu

THROTTLED = "podgpu_clock_throttle_active"
ONE_OF_TEN, TWO_OF_TEN = "0 0 0 1 0 0 0 0 0 0 " * 4, "0 0 0 1 0 0 0 0 1 0 " * 4


def throttled(reason: str, pod: str = "") -> str:
    return gpu(THROTTLED, pod, reason=reason)


CLOCKS: Mapping[str, tuple[Case, ...]] = {
    "PodgpuThermalThrottling": (
        Case(
            "all the time",
            {throttled("sw_thermal"): "1x39 0x30", throttled("hw_thermal"): "0x70"},
            35,
            [device(reason="sw_thermal")],
            f"GPU 0 of {NODE} is throttled because of heat",
            f"sw_thermal reduced the clocks of {UUID} for 100% of ten minutes.",
            resolved=60,
        ),
        Case(
            "two minutes of ten",
            {throttled("sw_thermal"): TWO_OF_TEN},
            35,
            [device(reason="sw_thermal")],
        ),
        Case(
            "while the holder of the GPU changes",
            {throttled("hw_thermal", "train-0"): "1x19", throttled("hw_thermal"): "_x20 1x19"},
            22,
            [device(reason="hw_thermal")],
        ),
        Case("for less than five minutes", {throttled("hw_thermal"): "0x9 1x29"}, 14),
        Case("one minute of ten", {throttled("sw_thermal"): ONE_OF_TEN}, 35),
        Case("the power limit", {throttled("power_cap"): "1x39"}, 35),
        Case("one sample", {throttled("hw_thermal"): "0x20 1 0x20"}, 30),
        Case("no longer read", {throttled("hw_thermal"): "1x9 stale"}, 25),
    ),
    "PodgpuPowerBrake": (
        Case(
            "a power brake signal",
            {
                throttled("hw_power_brake"): "0x9 1x29 0x30",
                throttled("hw_slowdown"): "0x9 1x29 0x30",
            },
            35,
            [device(reason="hw_power_brake")],
            f"The hardware throttles GPU 0 of {NODE}",
            f"hw_power_brake reduced the clocks of {UUID} for 100% of ten minutes. Its power "
            "supply requested this, or the GPU drew too much power for a moment.",
            resolved=60,
        ),
        Case(
            "an older card, which reports no more specific reason",
            {throttled("hw_slowdown"): "1x39"},
            35,
            [device(reason="hw_slowdown")],
        ),
        Case(
            "two minutes of ten",
            {throttled("hw_power_brake"): TWO_OF_TEN},
            35,
            [device(reason="hw_power_brake")],
        ),
        Case(
            "two minutes of ten, an older card",
            {throttled("hw_slowdown"): TWO_OF_TEN, throttled("hw_thermal"): "0x39"},
            35,
            [device(reason="hw_slowdown")],
        ),
        Case("heat", {throttled("hw_thermal"): "1x39", throttled("hw_slowdown"): "1x39"}, 35),
        Case(
            "heat for two minutes of ten",
            {throttled("hw_thermal"): TWO_OF_TEN, throttled("hw_slowdown"): TWO_OF_TEN},
            35,
        ),
        Case(
            "one minute of ten",
            {throttled("hw_power_brake"): ONE_OF_TEN, throttled("hw_slowdown"): ONE_OF_TEN},
            35,
        ),
        Case("for less than five minutes", {throttled("hw_power_brake"): "0x9 1x29"}, 14),
        Case(
            "the power limit, which reduces the clocks of a healthy GPU under full load",
            {throttled("hw_power_brake"): "0x39", throttled("power_cap"): "1x39"},
            35,
        ),
    ),
}
