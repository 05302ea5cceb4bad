"""What the source says when the kubelet answers; a real server on a real socket."""

import asyncio
import threading
from pathlib import Path

import grpc
import pytest

from config.value_types import Duration
from pipeline.model import (
    ClaimsReplaced,
    Evidence,
    PartialRef,
    RawDeviceId,
    ResourcesAdvertised,
)
from sources.podresources.responses import read_list
from tests.fakes.kubelet import V1, V1ALPHA1, FakeKubelet, claim, pod
from tests.sources.podresources.running import asking, eventually

GPU = "nvidia.com/gpu"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


async def test_claims_are_what_the_kubelet_lists(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, asking(path, max_age=Duration(90)) as ctx:
        kubelet.pods = [pod("a", {GPU: ["GPU-1", "GPU-0"], "rdma/hca": ["mlx5_0"]}), pod("b")]
        ctx.hint()
        await ctx.until("a")
        [one] = ctx.claims() or ()
        assert one.subject == PartialRef("ml", "a", "main")
        assert one.devices == (RawDeviceId("plugin", "GPU-0"), RawDeviceId("plugin", "GPU-1"))
        assert one.resource == GPU
        assert one.origin.evidence is Evidence.KUBELET_IDS
        assert one.origin.detail == f"{path} v1 List"
        last = (await ctx.wait_for(ClaimsReplaced))[-1]
        assert 89e9 < last.good_for_ns <= 90e9
        assert ctx.reasons() == []


async def test_no_one_holding_anything_is_said(path: Path) -> None:
    async with FakeKubelet(path), asking(path) as ctx:
        await ctx.until()


async def test_the_kubelet_s_order_changes_nothing(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod(f"p{n}", {GPU: [f"GPU-{n}{m}" for m in range(8)]}) for n in range(20)]
        async with asking(path) as ctx:
            said = await ctx.wait_for(ClaimsReplaced)
            for count in range(2, 5):
                ctx.hint()
                said = await ctx.wait_for(ClaimsReplaced, count)
        assert all(one.claims is said[0].claims for one in said)


async def test_old_kubelets_have_v1alpha1_alone(path: Path) -> None:
    async with FakeKubelet(path, V1ALPHA1) as kubelet, asking(path) as ctx:
        await ctx.until()
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
        ctx.hint()
        await ctx.until("a")
        assert (ctx.claims() or ())[0].origin.detail == f"{path} v1alpha1 List"
        # Remembered: v1 is tried no more on this connection.
        assert kubelet.calls == {"v1/List": 1, "v1alpha1/List": 2}
        assert ctx.advertised() is None
        await kubelet.stop()
        kubelet.methods = set(V1)
        await kubelet.start()
        await ctx.when(lambda: ctx.advertised() == {})
        assert (ctx.claims() or ())[0].origin.detail == f"{path} v1 List"


async def test_a_socket_where_no_one_knows_of_pods(path: Path) -> None:
    async with FakeKubelet(path, ()), asking(path) as ctx:
        text = f"{path}: List is not implemented there; check that it is the kubelet's socket"
        assert await ctx.lost() == text


async def test_what_is_offered_is_said_each_interval(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.offered = {GPU: ["GPU-1", "GPU-0", "GPU-1"], "rdma/hca": ["mlx5_0"]}
        async with asking(path, interval=Duration(0.2)) as ctx:
            await ctx.when(lambda: ctx.advertised() == {GPU: ["GPU-0", "GPU-1"]})
            kubelet.offered = {}
            await ctx.when(lambda: ctx.advertised() == {})
            # Not on a hint: what is offered seldom changes.
            before = kubelet.calls["v1/GetAllocatableResources"]
            ctx.hint()
            lists = kubelet.calls["v1/List"]
            await ctx.wait_for(ClaimsReplaced, lists + 1)
            assert kubelet.calls["v1/GetAllocatableResources"] <= before + 1


async def test_t01_what_is_offered_is_said_before_the_first_claims(path: Path) -> None:
    """Who hears the list first would take GPUs of the device plugin for a scheduler's."""
    async with FakeKubelet(path) as kubelet:
        kubelet.offered = {GPU: ["GPU-0"]}
        async with asking(path) as ctx:
            await ctx.until()
            assert [type(event) for event in ctx.events] == [ResourcesAdvertised, ClaimsReplaced]


@pytest.mark.parametrize("how", ["unimplemented", "disabled"])
async def test_a_kubelet_that_does_not_report_what_it_offers(path: Path, how: str) -> None:
    name = "v1/GetAllocatableResources"
    kubelet = FakeKubelet(path)
    if how == "disabled":
        kubelet.disabled.add(name)
    else:
        kubelet.methods.discard(name)
    async with kubelet, asking(path, interval=Duration(0.05)) as ctx:
        await ctx.wait_for(ClaimsReplaced, 4)
        assert ctx.advertised() is None
        assert kubelet.calls[name] == 1
        assert ctx.reasons() == []


async def test_what_is_offered_may_fail_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeKubelet(path) as kubelet, asking(path, interval=Duration(0.05)) as ctx:
        await ctx.when(lambda: ctx.advertised() == {})
        kubelet.methods.discard("v1/GetAllocatableResources")
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 3)
        assert ctx.reasons() == []
    assert caplog.messages == []


async def test_five_megabytes_are_read_and_seventeen_are_reported_of(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, asking(path) as ctx:
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
        kubelet.padding = 5_000_000
        ctx.hint()
        await ctx.until("a")
        kubelet.padding = 17_000_000
        ctx.hint()
        assert await ctx.lost() == (
            f"{path}: the response to List is larger than the limit of 16MiB; configure the "
            "device plugin to offer larger units"
        )
        assert ctx.pods() == ["a"]
    assert ctx.requests()["v1/List", "too_large"] == 1


async def test_a_node_that_hands_out_memory_by_the_megabyte(path: Path) -> None:
    uuids = [f"GPU-fef8089b-4820-abfc-e83e-94318197576{n}" for n in range(2)]
    async with FakeKubelet(path) as kubelet:
        units = [f"{uuid}-memory-{n}" for uuid in uuids for n in range(40_000)]
        kubelet.pods = [pod("a", {"volcano.sh/vgpu-memory": units})]
        async with asking(path) as ctx:
            await ctx.until("a", timeout=20)
            assert [raw.text for raw in (ctx.claims() or ())[0].devices] == [
                f"{uuid}-memory-0" for uuid in uuids
            ]


async def test_answers_are_read_away_from_the_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def read(*arguments: object) -> object:
        threads.append(threading.current_thread())
        return read_list(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("sources.podresources.socket_client.read_list", read)
    async with FakeKubelet(path), asking(path) as ctx:
        await ctx.until()
    assert threads
    assert threading.main_thread() not in threads


async def test_an_answer_that_is_none(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeKubelet(path) as kubelet, asking(path, interval=Duration(0.1)) as ctx:
        await ctx.until()
        kubelet.error = (grpc.StatusCode.INTERNAL, "no pods today")
        text = f"{path}: the kubelet responded to List with INTERNAL: no pods today"
        assert await ctx.lost() == text
        kubelet.error = None
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 1)
    assert ctx.requests()["v1/List", "failed"] >= 1
    assert caplog.messages == [f"{text}; its last response stays in use for 5m"]


async def test_claims_that_are_prepared_later_are_found_soon(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod("a", claims=[claim()]), pod("b", {GPU: ["GPU-0"]})]
        async with asking(path) as ctx:
            await ctx.until("b")
            await asyncio.sleep(0.7)
            assert kubelet.calls["v1/List"] == 1
            assert 1 <= kubelet.calls["v1/Get"] <= 3
            kubelet.pods[0] = pod("a", claims=[claim("gpu.nvidia.com/node-1/gpu-0")])
            await ctx.until("a", "b", timeout=3)
            assert kubelet.calls["v1/List"] == 2
            gets = kubelet.calls["v1/Get"]
            await asyncio.sleep(0.5)
            assert kubelet.calls["v1/Get"] == gets


async def test_every_pod_has_its_turn_to_be_looked_after(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod(f"p{n}", claims=[claim()]) for n in range(9)]
        async with asking(path) as ctx:
            await ctx.until()
            kubelet.pods[8] = pod("p8", claims=[claim("gpu.nvidia.com/node-1/gpu-0")])
            await ctx.until("p8", timeout=4)


NEVER_TWICE = ("no pods", "\x1b[31mred\nand a second line", "x" * 3000, "\u202eat 08:15:00", "")


async def test_what_a_kubelet_says_in_its_errors_is_fit_for_a_log(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN):
        for details in NEVER_TWICE:
            async with FakeKubelet(path) as kubelet:
                kubelet.error = (code, details)
                async with asking(path, interval=Duration(0.05)) as ctx:
                    reason = await ctx.lost()
            for text in (reason, caplog.messages[-1]):
                assert text.isprintable()
                assert len(text) < 700
                assert text.startswith(f"{path}: the kubelet ")


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNKNOWN,
    ],
)
async def test_the_same_fault_in_other_words_is_said_once(
    path: Path, caplog: pytest.LogCaptureFixture, code: grpc.StatusCode
) -> None:
    async with FakeKubelet(path) as kubelet, asking(path, interval=Duration(0.05)) as ctx:
        await ctx.until()
        for attempt in range(6):
            kubelet.error = (code, f"request 4711-{attempt} at 08:15:0{attempt}: no")
            lists = kubelet.calls["v1/List"]
            ctx.hint()
            await eventually(lambda: kubelet.calls["v1/List"] > lists)  # noqa: B023 - used at once
        assert len(ctx.reasons()) == 1
        assert len(caplog.messages) == 1
        # Another fault is news, and so is the same one after an answer.
        kubelet.error = (grpc.StatusCode.DATA_LOSS, "disk")
        assert "DATA_LOSS: disk" in await ctx.lost(2)
        kubelet.error = None
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 1)
        kubelet.error = (grpc.StatusCode.DATA_LOSS, "disk")
        await ctx.lost(3)
        assert len(caplog.messages) == 3


@pytest.mark.parametrize("method", ["Get", "GetAllocatableResources"])
async def test_a_method_beside_the_list_that_fails_is_said_once_and_costs_no_claims(
    path: Path, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]}), pod("b", claims=[claim()])]
        kubelet.garbled[f"v1/{method}"] = lambda count: f"attempt {count}\n"
        async with asking(path, interval=Duration(1)) as ctx:
            await ctx.wait_for(ClaimsReplaced, 3)
            assert kubelet.calls[f"v1/{method}"] >= 2
            assert ctx.pods() == ["a"]
            assert ctx.reasons() == []
    assert caplog.messages == [
        f"{path}: the kubelet responded to {method} with INTERNAL: attempt 1 "
    ]


@pytest.mark.parametrize("how", ["unimplemented", "disabled"])
async def test_a_kubelet_that_reports_of_no_single_pod(path: Path, how: str) -> None:
    kubelet = FakeKubelet(path)
    if how == "disabled":
        kubelet.disabled.add("v1/Get")
    else:
        kubelet.methods.discard("v1/Get")
    async with kubelet:
        kubelet.pods = [pod("a", claims=[claim()])]
        async with asking(path) as ctx:
            await ctx.until()
            await asyncio.sleep(0.4)
            ctx.hint()
            await ctx.wait_for(ClaimsReplaced, 2)
            await asyncio.sleep(0.4)
            assert kubelet.calls["v1/Get"] == 1
            assert ctx.reasons() == []


async def test_a_pod_that_left_before_its_claims_were_prepared(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod("a", claims=[claim()])]
        async with asking(path) as ctx:
            await ctx.until()
            kubelet.pods = []
            await asyncio.sleep(0.4)
            assert kubelet.calls["v1/Get"] >= 1
            assert ctx.requests()["v1/Get", "absent"] >= 1
            assert ctx.reasons() == []
