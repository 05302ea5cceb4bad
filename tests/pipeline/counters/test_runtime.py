"""A changed list in a running podgpu: only components that use the plan are replaced."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from config.schema import Config, Counters
from pipeline.base.errors import PermanentError
from pipeline.component import registry
from pipeline.component.contracts import SourceContext
from pipeline.component.kind import Kind
from pipeline.component.registry import KINDS
from pipeline.counters import list_source
from pipeline.fields import FieldPlan
from pipeline.model import DevicesDiscovered, SamplesTaken
from pipeline.runtime.runtime import Runtime
from tests.pipeline.counters.configmaps import ConfigMap, refuse, served
from tests.pipeline.counters.test_list_follower import BAD, ONE, TWO, until
from tests.pipeline.runtime.runtimes import GPUS, registered
from tests.support.components import KeepingSink, Registered, configured, never
from tests.support.nodes import reading, uuid_of

__all__ = ["registered"]

SOURCES = {"g": ("gpus", 0), "p": ("pods", 0)}
SINKS = {"k": ("keep", 0), "o": ("other", 0)}


class Node:
    """A podgpu with one source and one sink that use the plan, and others that do not."""

    def __init__(self, registered: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registered = registered
        self.plans: list[list[str]] = []
        self.restart_states: list[object] = []
        self.others = 0
        registered.sources = {"gpus": self._gpus, "pods": self._pods}
        planned = Kind("", "", "", uses_plan=True)
        monkeypatch.setitem(registry.KINDS, ("source", "gpus"), planned)
        monkeypatch.setitem(registry.KINDS, ("sink", "keep"), planned)
        self.runtime: Runtime

    async def _gpus(self, ctx: SourceContext) -> None:
        self.plans.append(listed(ctx.plan))
        self.restart_states.append(ctx.restart_state.get("xids"))
        ctx.restart_state["xids"] = len(self.plans)
        await ctx.emit(DevicesDiscovered(GPUS))
        if "gpu_up" in ctx.plan:
            await ctx.emit(SamplesTaken((reading(uuid_of(0), "gpu_up", 1, when=ctx.clock.now()),)))
        await never()

    async def _pods(self, ctx: SourceContext) -> None:
        self.others += 1
        await never()

    def entered(self, kind: str) -> int:
        sink = self.registered.sinks[kind]
        assert isinstance(sink, KeepingSink)
        return sink.entered

    def reloads(self) -> dict[str, float]:
        return {
            dict(point.labels)["result"]: point.value
            for family, points in self.runtime.telemetry()
            if family.name == "podgpu_config_reloads_total"
            for point in points
        }

    @asynccontextmanager
    async def running(self, config: Config) -> AsyncIterator[Runtime]:
        stop = asyncio.Event()
        self.runtime = Runtime(config)
        task = asyncio.create_task(self.runtime.run(stop))
        try:
            await until(lambda: self.plans or task.done())
            await asyncio.sleep(0.1)
            yield self.runtime
        finally:
            stop.set()
            await task


def listed(plan: FieldPlan) -> list[str]:
    return [row.help for row in plan.rows]


def with_counters(counters: Counters) -> Config:
    return msgspec.structs.replace(configured(SOURCES, SINKS), counters=counters)


@pytest.fixture
def node(registered: Registered, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(registered, monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "counters.csv"
    path.write_text(ONE)
    return path


@pytest.mark.slow
async def test_a_changed_list_replaces_the_components_that_use_the_plan(
    node: Node, path: Path
) -> None:
    async with node.running(with_counters(Counters(file=path, own=False))) as runtime:
        assert node.plans == [["One."]]
        path.write_text(TWO)
        await until(lambda: len(node.plans) == 2)
        assert node.plans[1] == listed(runtime.plan) == ["One.", "Two."]
        assert (node.entered("keep"), node.entered("other"), node.others) == (2, 1, 1)
        assert node.restart_states == [None, 1]
        await until(lambda: node.reloads() == {"done": 1})


@pytest.mark.slow
async def test_a_list_with_the_same_plan_replaces_no_component(node: Node, path: Path) -> None:
    async with node.running(with_counters(Counters(file=path, own=False))) as runtime:
        path.write_text(f"# a comment\n\n{ONE}")
        await asyncio.sleep(1)
        assert runtime.reread()
        await asyncio.sleep(0.5)
        assert len(node.plans) == 1
        assert node.entered("keep") == 1
        assert node.reloads() == {}


@pytest.mark.slow
async def test_an_invalid_list_changes_nothing(node: Node, path: Path) -> None:
    async with node.running(with_counters(Counters(file=path, own=False))) as runtime:
        path.write_text(BAD)
        await until(node.reloads)
        await until(lambda: node.reloads() == {"refused": 1})
        assert listed(runtime.plan) == ["One."]
        assert node.entered("keep") == 1


@pytest.mark.slow
async def test_a_list_with_which_a_sink_fails_is_not_used(
    node: Node, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = node.registered.sinks["keep"]
    assert isinstance(sink, KeepingSink)
    async with node.running(with_counters(Counters(file=path, own=False))) as runtime:
        sink.failures = [None, PermanentError("gone")]
        path.write_text(TWO)
        await until(node.reloads)
        await until(lambda: node.reloads() == {"failed": 1})
        text = "sinks.k: gone; podgpu continues with the previous counters list"
        assert f"counters list not reloaded: {text}" in caplog.messages
        assert listed(runtime.plan) == ["One."]
        assert len(node.plans) == 1
        assert runtime.reread()
        await until(lambda: len(node.plans) == 2)
        await until(lambda: node.reloads() == {"failed": 1, "done": 1})


async def test_a_changed_setting_uses_the_other_list(node: Node, path: Path) -> None:
    other = path.with_name("other.csv")
    other.write_text(TWO)
    async with node.running(with_counters(Counters(file=path, own=False))) as runtime:
        assert await runtime.reload(with_counters(Counters(file=other, own=False)))
        assert listed(runtime.plan) == ["One.", "Two."]
        path.write_text(BAD)
        other.write_text(ONE)
        await until(lambda: listed(runtime.plan) == ["One."])
        await until(lambda: node.reloads() == {"done": 1})
        assert await runtime.reload(with_counters(Counters()))
        assert runtime.plan == FieldPlan()
        assert not runtime.reread()


@pytest.mark.slow
async def test_a_configuration_with_a_missing_list_is_refused(node: Node, path: Path) -> None:
    config = with_counters(Counters(file=path, own=False))
    async with node.running(config) as runtime:
        assert not await runtime.reload(with_counters(Counters(file=path.with_name("none"))))
        assert runtime.config == config
        path.write_text(TWO)
        await until(lambda: listed(runtime.plan) == ["One.", "Two."])


async def test_a_start_without_the_list_fails_and_names_the_file(node: Node, path: Path) -> None:
    path.unlink()
    runtime = Runtime(with_counters(Counters(file=path)))
    with pytest.raises(PermanentError, match=r"counters: .*counters\.csv: no such file"):
        await runtime.run(asyncio.Event())


@pytest.mark.slow
async def test_a_start_with_an_unusable_list_reads_the_default_fields(
    node: Node, path: Path
) -> None:
    path.write_text(BAD)
    async with node.running(with_counters(Counters(file=path))) as runtime:
        assert runtime.plan == FieldPlan()
        path.write_text(ONE)
        await until(lambda: "One." in listed(runtime.plan))


async def test_podgpu_can_be_stopped_while_it_waits_for_the_list(
    node: Node, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def silent(_: object) -> str:
        await released.wait()
        return ONE

    monkeypatch.setattr(list_source.ListFile, "read", silent)
    stop = asyncio.Event()
    task = asyncio.create_task(Runtime(with_counters(Counters(file=path))).run(stop))
    await asyncio.sleep(0.1)
    stop.set()
    async with asyncio.timeout(2):
        await task
    assert node.plans == []


@pytest.mark.slow
async def test_a_configmap_that_is_readable_later_is_used(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_source, "_REQUEST_INTERVAL", 0.1)
    server = served(ConfigMap(metrics=TWO))
    refuse(server, 403, "Forbidden")
    async with server.serving():
        setting = Counters(
            configmap="gpu:counters", kubeconfig=server.kubeconfig(tmp_path / "k"), own=False
        )
        async with node.running(with_counters(setting)) as runtime:
            assert len(runtime.plan.fields) > 20
            server.refusals.clear()
            await until(lambda: listed(runtime.plan) == ["One.", "Two."])


async def test_a_configmap_is_used_from_the_first_reading(node: Node, tmp_path: Path) -> None:
    async with served(ConfigMap(metrics=TWO)).serving() as server:
        setting = Counters(
            configmap="gpu:counters", kubeconfig=server.kubeconfig(tmp_path / "k"), own=False
        )
        async with node.running(with_counters(setting)):
            assert node.plans == [["One.", "Two."]]


class TestPresence:
    def present(self, runtime: Runtime) -> dict[str, float]:
        return {
            dict(point.labels)["state"]: point.value
            for family, points in runtime.telemetry()
            if family.name == "podgpu_gpus"
            for point in points
        }

    @pytest.mark.parametrize(
        ("own", "expected"),
        [(True, {"present": 1, "expected": 2}), (False, {"expected": 2})],
    )
    async def test_gpus_whose_presence_is_not_read_are_not_counted(
        self, node: Node, path: Path, own: bool, expected: dict[str, float]
    ) -> None:
        async with node.running(with_counters(Counters(file=path, own=own))) as runtime:
            await until(lambda: self.present(runtime) == expected)


def uses_the_plan(module: str) -> bool:
    package = import_module(module.rpartition(".")[0])
    folder = Path(inspect.getfile(package)).parent
    return any(
        ".plan" in path.read_text(encoding="utf-8").replace("sources.nvml.read_plan", "")
        for path in folder.rglob("*.py")
    )


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_the_registry_marks_components_that_use_the_plan(entry: tuple[str, str]) -> None:
    entry_of: Callable[..., Kind] = KINDS.__getitem__
    module = entry_of(entry).factory.partition(":")[0]
    assert entry_of(entry).uses_plan == uses_the_plan(module)
