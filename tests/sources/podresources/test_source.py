"""What the source reports when the kubelet responds, with a real server on a real socket."""

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
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from sources.podresources.responses import read_list
from tests.fakes.kubelet import V1, V1ALPHA1, FakeKubelet, claim, pod
from tests.sources.podresources.source_runner import eventually, running_source

GPU = "nvidia.com/gpu"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


async def test_each_listed_container_with_gpus_is_a_claim(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path, max_age=Duration(90)) as ctx:
        kubelet.pods = [pod("a", {GPU: ["GPU-1", "GPU-0"], "rdma/hca": ["mlx5_0"]}), pod("b")]
        ctx.hint()
        await ctx.until("a")
        [found] = ctx.claims() or ()
        assert found.subject == PartialRef("ml", "a", "main")
        assert found.devices == (RawDeviceId("plugin", "GPU-0"), RawDeviceId("plugin", "GPU-1"))
        assert found.resource == GPU
        assert found.origin.evidence is Evidence.KUBELET_IDS
        assert found.origin.detail == f"{path} v1 List"
        last = (await ctx.wait_for(ClaimsReplaced))[-1]
        assert 89e9 < last.good_for_ns <= 90e9
        assert ctx.reasons() == []


async def test_a_list_without_devices_is_reported(path: Path) -> None:
    async with FakeKubelet(path), running_source(path) as ctx:
        await ctx.until()


@pytest.mark.slow
async def test_the_order_in_the_response_does_not_matter(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod(f"p{n}", {GPU: [f"GPU-{n}{m}" for m in range(8)]}) for n in range(20)]
        async with running_source(path) as ctx:
            reports = await ctx.wait_for(ClaimsReplaced)
            for count in range(2, 5):
                ctx.hint()
                reports = await ctx.wait_for(ClaimsReplaced, count)
        assert all(one.claims is reports[0].claims for one in reports)


async def test_v1alpha1_is_used_if_the_kubelet_has_no_other_version(path: Path) -> None:
    async with FakeKubelet(path, V1ALPHA1) as kubelet, running_source(path) as ctx:
        await ctx.until()
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
        ctx.hint()
        await ctx.until("a")
        assert (ctx.claims() or ())[0].origin.detail == f"{path} v1alpha1 List"
        # The version is remembered: v1 is not tried again on this connection.
        assert kubelet.calls == {"v1/List": 1, "v1alpha1/List": 2}
        assert ctx.advertised() is None
        await kubelet.stop()
        kubelet.methods = set(V1)
        await kubelet.start()
        await ctx.when(lambda: ctx.advertised() == {})
        assert (ctx.claims() or ())[0].origin.detail == f"{path} v1 List"


async def test_a_server_without_the_service_is_reported(path: Path) -> None:
    async with FakeKubelet(path, ()), running_source(path) as ctx:
        text = f"{path}: List is not implemented there; check that it is the kubelet's socket"
        assert await ctx.lost() == text


@pytest.mark.slow
async def test_advertised_resources_are_reported_at_each_interval(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.offered = {GPU: ["GPU-1", "GPU-0", "GPU-1"], "rdma/hca": ["mlx5_0"]}
        async with running_source(path, interval=Duration(0.2)) as ctx:
            await ctx.when(lambda: ctx.advertised() == {GPU: ["GPU-0", "GPU-1"]})
            kubelet.offered = {}
            await ctx.when(lambda: ctx.advertised() == {})
            # A hint does not request them: they seldom change.
            before = kubelet.calls["v1/GetAllocatableResources"]
            ctx.hint()
            lists = kubelet.calls["v1/List"]
            await ctx.wait_for(ClaimsReplaced, lists + 1)
            assert kubelet.calls["v1/GetAllocatableResources"] <= before + 1


async def test_t01_advertised_resources_are_reported_before_the_first_claims(path: Path) -> None:
    """Otherwise the join would take GPUs of the device plugin for those of a scheduler."""
    async with FakeKubelet(path) as kubelet:
        kubelet.offered = {GPU: ["GPU-0"]}
        async with running_source(path) as ctx:
            await ctx.until()
            assert [type(event) for event in ctx.events] == [ResourcesAdvertised, ClaimsReplaced]


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["unimplemented", "disabled"])
async def test_a_kubelet_without_get_allocatable_resources_is_called_once(
    path: Path, reason: str
) -> None:
    name = "v1/GetAllocatableResources"
    kubelet = FakeKubelet(path)
    if reason == "disabled":
        kubelet.disabled.add(name)
    else:
        kubelet.methods.discard(name)
    async with kubelet, running_source(path, interval=Duration(0.05)) as ctx:
        await ctx.wait_for(ClaimsReplaced, 4)
        assert ctx.advertised() is None
        assert kubelet.calls[name] == 1
        assert ctx.reasons() == []


@pytest.mark.slow
async def test_a_failure_of_get_allocatable_resources_does_not_affect_claims(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path, interval=Duration(0.05)) as ctx:
        await ctx.when(lambda: ctx.advertised() == {})
        kubelet.methods.discard("v1/GetAllocatableResources")
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 3)
        assert ctx.reasons() == []
    assert caplog.messages == []


async def test_a_response_over_16_mib_is_an_error_and_the_last_claims_stay(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path) as ctx:
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


@pytest.mark.slow
async def test_many_memory_units_of_a_gpu_are_one_device(path: Path) -> None:
    uuids = [f"GPU-fef8089b-4820-abfc-e83e-94318197576{n}" for n in range(2)]
    async with FakeKubelet(path) as kubelet:
        units = [f"{uuid}-memory-{n}" for uuid in uuids for n in range(MAX_CLAIMED_DEVICES)]
        kubelet.pods = [pod("a", {"volcano.sh/vgpu-memory": units})]
        async with running_source(path) as ctx:
            await ctx.until("a", timeout=20)
            assert [raw.text for raw in (ctx.claims() or ())[0].devices] == [
                f"{uuid}-memory-0" for uuid in uuids
            ]


async def test_responses_are_decoded_in_another_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def read(*arguments: object) -> object:
        threads.append(threading.current_thread())
        return read_list(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("sources.podresources.socket_client.read_list", read)
    async with FakeKubelet(path), running_source(path) as ctx:
        await ctx.until()
    assert threads
    assert threading.main_thread() not in threads


async def test_an_error_response_is_reported_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path, interval=Duration(0.1)) as ctx:
        await ctx.until()
        kubelet.error = (grpc.StatusCode.INTERNAL, "no pods today")
        text = f"{path}: the kubelet responded to List with INTERNAL: no pods today"
        assert await ctx.lost() == text
        kubelet.error = None
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 1)
    assert ctx.requests()["v1/List", "failed"] >= 1
    assert caplog.messages == [f"{text}; the last response of this socket stays in use for 5m"]


@pytest.mark.slow
async def test_resource_claims_that_are_prepared_later_are_found_soon(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod("a", claims=[claim()]), pod("b", {GPU: ["GPU-0"]})]
        async with running_source(path) as ctx:
            await ctx.until("b")
            await asyncio.sleep(0.9)
            assert 2 <= kubelet.calls["v1/List"] <= 4
            kubelet.pods[0] = pod("a", claims=[claim("gpu.nvidia.com/node-1/gpu-0")])
            await ctx.until("a", "b", timeout=3)
            lists = kubelet.calls["v1/List"]
            await asyncio.sleep(1)
            assert kubelet.calls["v1/List"] == lists


@pytest.mark.slow
async def test_a_claim_that_is_prepared_is_found_among_unprepared_ones(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod(f"p{n}", claims=[claim()]) for n in range(9)]
        async with running_source(path) as ctx:
            await ctx.until()
            kubelet.pods[8] = pod("p8", claims=[claim("gpu.nvidia.com/node-1/gpu-0")])
            await ctx.until("p8", timeout=4)


DETAILS = ("no pods", "\x1b[31mred\nand a second line", "x" * 3000, "\u202eat 08:15:00", "")


@pytest.mark.slow
async def test_error_texts_of_the_kubelet_are_short_and_printable(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN):
        for details in DETAILS:
            async with FakeKubelet(path) as kubelet:
                kubelet.error = (code, details)
                async with running_source(path, interval=Duration(0.05)) as ctx:
                    reason = await ctx.lost()
            for text in (reason, caplog.messages[-1]):
                assert text.isprintable()
                assert len(text) < 700
                assert text.startswith(f"{path}: the kubelet ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNKNOWN,
    ],
)
async def test_the_same_error_with_other_texts_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture, code: grpc.StatusCode
) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path, interval=Duration(0.05)) as ctx:
        await ctx.until()
        for attempt in range(6):
            kubelet.error = (code, f"request 4711-{attempt} at 08:15:0{attempt}: no")
            lists = kubelet.calls["v1/List"]
            ctx.hint()
            await eventually(lambda: kubelet.calls["v1/List"] > lists)  # noqa: B023 - used here
        assert len(ctx.reasons()) == 1
        assert len(caplog.messages) == 1
        # Another fault is logged, and so is the same one after a successful response.
        kubelet.error = (grpc.StatusCode.DATA_LOSS, "disk")
        assert "DATA_LOSS: disk" in await ctx.lost(2)
        kubelet.error = None
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 1)
        kubelet.error = (grpc.StatusCode.DATA_LOSS, "disk")
        await ctx.lost(3)
        assert len(caplog.messages) == 3


@pytest.mark.slow
async def test_a_failing_method_other_than_list_is_logged_once_and_claims_stay(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    method = "GetAllocatableResources"
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
        kubelet.garbled[f"v1/{method}"] = lambda count: f"attempt {count}\n"
        async with running_source(path, interval=Duration(1)) as ctx:
            await ctx.wait_for(ClaimsReplaced, 3)
            assert kubelet.calls[f"v1/{method}"] >= 2
            assert ctx.pods() == ["a"]
            assert ctx.reasons() == []
    assert caplog.messages == [
        f"{path}: the kubelet responded to {method} with INTERNAL: attempt 1 "
    ]


@pytest.mark.slow
async def test_a_pod_deleted_before_its_claims_were_prepared_is_no_error(path: Path) -> None:
    async with FakeKubelet(path) as kubelet:
        kubelet.pods = [pod("a", claims=[claim()])]
        async with running_source(path) as ctx:
            await ctx.until()
            kubelet.pods = []
            await asyncio.sleep(0.4)
            lists = kubelet.calls["v1/List"]
            await asyncio.sleep(1)
            assert kubelet.calls["v1/List"] == lists
            assert ctx.reasons() == []
