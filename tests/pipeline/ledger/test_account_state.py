"""Accounts that are stored in the file are loaded unchanged, or refused."""

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
def test_a_loaded_account_equals_the_stored_one(usage: Usage) -> None:
    for uuid, one in usage.devices.items():
        # Larger numbers are no totals: 2**62 ns are 146 years.
        if all(int(number) < 1 << 62 for number in re.findall(r":([0-9]+)", dump(one))):
            assert load(uuid, dump(one)) == one


def account_with_holding() -> DeviceUsage:
    info = PodInfo("u-a", "ml", "a", "Running", "Job", "train", "Burstable", (("team", "x"),))
    runs = holding(
        "a", GPU, info=info, until=at(60), evidence=Evidence.KUBELET_IDS, xids=((79, 1),)
    )
    one = used("a", busy=5, held=7, energy=9, memory=3, info=info, holding=runs)
    return account(GPU, one, until=at(60), unheld=60 * NS)


def test_a_loaded_holding_and_pod_equal_the_stored_ones() -> None:
    assert load(GPU.uuid, dump(account_with_holding())) == account_with_holding()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(
            lambda document: document.update(elapsed_ns=1), id="parts do not sum to the total"
        ),
        pytest.param(lambda document: document.update(unheld_ns=-1), id="negative"),
        pytest.param(lambda document: document.pop("start"), id="without start"),
        pytest.param(lambda document: document.update(device="GPU-another"), id="another device's"),
        pytest.param(lambda document: document.update(containers=7), id="another type"),
        pytest.param(
            lambda document: document.update(containers=document["containers"] * 2),
            id="a container twice",
        ),
        pytest.param(
            lambda document: document["containers"][0]["holding"].update(device="GPU-another"),
            id="another device's holding",
        ),
    ],
)
def test_an_inconsistent_account_is_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(dump(account_with_holding()))
    damage(document)
    with pytest.raises(ValueError, match=r"\w"):
        load(GPU.uuid, json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "null", "[" * 100_000, "\udcff", "1e400"])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        load(GPU.uuid, text)


def test_an_unknown_key_of_a_newer_podgpu_is_ignored() -> None:
    document = json.loads(dump(account_with_holding())) | {"brand_new": 1}
    assert load(GPU.uuid, json.dumps(document)) == account_with_holding()


def test_loaded_times_are_converted_to_the_current_monotonic_clock() -> None:
    now = Instant(5 * NS, START.wall_ns + 100 * NS)
    (device,) = to_current_clock([account_with_holding()], now).devices
    assert device.start == Instant(-95 * NS, START.wall_ns)
    assert device.at == Instant(-35 * NS, at(60).wall_ns)
    runs = device.containers[0].holding
    assert runs is not None
    assert runs.start == device.start
    assert replace(device, start=START, at=at(60)).elapsed_ns == account_with_holding().elapsed_ns


def test_no_loaded_time_is_after_now_if_the_wall_clock_was_set_back() -> None:
    now = Instant(5 * NS, START.wall_ns - 3600 * NS)
    (device,) = to_current_clock([account_with_holding()], now).devices
    assert device.at == now
    assert device.start == Instant(now.mono_ns - 60 * NS, now.wall_ns - 60 * NS)


def test_t8_a_holding_that_ended_after_the_last_sample_keeps_its_length_over_a_boot() -> None:
    """The wall clock was set back, so it does not show how much time has passed."""
    document = account_with_holding()
    (one,) = document.containers
    assert one.holding is not None
    ended = replace(one.holding, end=at(63))
    one = replace(one, holding=None, ended=at(63), closing=(ended,))
    now = Instant(5 * NS, START.wall_ns - 3600 * NS)
    (device,) = to_current_clock([replace(document, containers=(one,))], now).devices
    (found,) = device.containers
    assert found.ended == now
    assert device.at.mono_ns == now.mono_ns - 3 * NS
    assert found.closing[0].start.mono_ns == now.mono_ns - 63 * NS
