"""Accounts in the file come back as they were, or not at all."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from pipeline.ledger.account_state import dump, load, to_current_clock
from pipeline.model import NS, DeviceUsage, Evidence, Instant, PodInfo, Usage
from tests.support.nodes import START, at, gpu
from tests.support.usage import account, holding, usages, used

GPU = gpu(0)


@given(usages([GPU]))
def test_an_account_comes_back_as_it_was(usage: Usage) -> None:
    for uuid, one in usage.devices.items():
        # Beyond that it is no total: 2**62 ns are 146 years.
        if all(int(number) < 1 << 62 for number in re.findall(r":([0-9]+)", dump(one))):
            assert load(uuid, dump(one)) == one


def full() -> DeviceUsage:
    info = PodInfo("u-a", "ml", "a", "Running", "Job", "train", "Burstable", (("team", "x"),))
    runs = holding(
        "a", GPU, info=info, until=at(60), evidence=Evidence.KUBELET_IDS, xids=((79, 1),)
    )
    one = used("a", busy=5, held=7, energy=9, memory=3, info=info, holding=runs)
    return account(GPU, one, until=at(60), unheld=60 * NS)


def test_a_holding_and_a_pod_come_back_too() -> None:
    assert load(GPU.uuid, dump(full())) == full()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(
            lambda given_out: given_out.update(elapsed_ns=1), id="parts that don't come to it"
        ),
        pytest.param(lambda given_out: given_out.update(unheld_ns=-1), id="less than none"),
        pytest.param(lambda given_out: given_out.pop("start"), id="without a beginning"),
        pytest.param(
            lambda given_out: given_out.update(device="GPU-another"), id="another device's"
        ),
        pytest.param(lambda given_out: given_out.update(containers=7), id="another type"),
        pytest.param(
            lambda given_out: given_out.update(containers=given_out["containers"] * 2),
            id="a container twice",
        ),
        pytest.param(
            lambda given_out: given_out["containers"][0]["holding"].update(device="GPU-another"),
            id="another device's holding",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    given_out = json.loads(dump(full()))
    spoil(given_out)
    with pytest.raises(ValueError, match=r"\w"):
        load(GPU.uuid, json.dumps(given_out))


@pytest.mark.parametrize("text", ["", "{", "null", "[" * 100_000, "\udcff", "1e400"])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        load(GPU.uuid, text)


def test_a_key_that_a_newer_podgpu_has_added_is_passed_over() -> None:
    given_out = json.loads(dump(full())) | {"brand_new": 1}
    assert load(GPU.uuid, json.dumps(given_out)) == full()


def test_moments_are_those_of_this_machine_s_clock() -> None:
    now = Instant(5 * NS, START.wall_ns + 100 * NS)
    (device,) = to_current_clock([full()], now).devices
    assert device.start == Instant(-95 * NS, START.wall_ns)
    assert device.at == Instant(-35 * NS, at(60).wall_ns)
    runs = device.containers[0].holding
    assert runs is not None
    assert runs.start == device.start
    assert replace(device, start=START, at=at(60)).elapsed_ns == full().elapsed_ns


def test_a_wall_clock_that_was_set_back_puts_no_moment_after_now() -> None:
    now = Instant(5 * NS, START.wall_ns - 3600 * NS)
    (device,) = to_current_clock([full()], now).devices
    assert device.at == now
    assert device.start == Instant(now.mono_ns - 60 * NS, now.wall_ns - 60 * NS)


def test_t8_what_was_heard_after_the_last_look_keeps_its_length_over_a_boot() -> None:
    """Though the wall clock was set back, so that it tells of no time that has passed."""
    given_out = full()
    (one,) = given_out.containers
    assert one.holding is not None
    ended = replace(one.holding, end=at(63))
    one = replace(one, holding=None, ended=at(63), closing=(ended,))
    now = Instant(5 * NS, START.wall_ns - 3600 * NS)
    (device,) = to_current_clock([replace(given_out, containers=(one,))], now).devices
    (found,) = device.containers
    assert found.ended == now
    assert device.at.mono_ns == now.mono_ns - 3 * NS
    assert found.closing[0].start.mono_ns == now.mono_ns - 63 * NS
