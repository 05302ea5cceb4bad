"""A whole podgpu with the real ledger: its page shows what `podgpu usage` prints."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.schema import Component
from pipeline.component.contracts import Source, SourceContext
from pipeline.model import NS, DevicesDiscovered, DeviceUse, Instant, ProcessesSampled
from pipeline.runtime import source_set
from pipeline.runtime.runtime import Runtime
from podgpu.cli.commands import run_command
from sinks.ledger.options import Options
from tests.pipeline.status_page.test_running import status_when
from tests.support.components import ScriptedSource, configured
from tests.support.http import LOCAL, Clients
from tests.support.nodes import claim, claims, gpu, uuid_of


def sample(at: Instant, since: Instant | None, seconds: int) -> ProcessesSampled:
    """Return a usage sample of a GPU that has been busy for these seconds, with 100 W."""
    busy = None if since is None else round(since.seconds_until(at) * NS)
    use = DeviceUse(uuid_of(0), at, since, (), 0, 0, busy, seconds * 100_000, 60 * NS)
    return ProcessesSampled((use,))


async def using(ctx: SourceContext) -> None:
    await ctx.emit(DevicesDiscovered((gpu(0),)))
    await ctx.emit(claims(claim("train-0", uuid_of(0)), good_for=600))
    # The usage samples of the last minute, all together.
    now = ctx.clock.now()
    before = None
    for seconds in range(0, 61, 5):
        ns = (seconds - 60) * NS
        at = Instant(now.mono_ns + ns, now.wall_ns + ns)
        await ctx.emit(sample(at, before, seconds))
        before = at
    await asyncio.Event().wait()


@pytest.mark.slow
async def test_the_page_and_the_command_show_the_same_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(kind: str, options: msgspec.Struct) -> Source:
        return ScriptedSource(using)

    monkeypatch.setattr(source_set, "build_source", build)
    path = tmp_path / "ledger.db"
    books = Component(role="sink", name="books", kind="ledger", options=Options(path=path))
    config = msgspec.structs.replace(configured({"gpus": ("gpus", 0)}, {}), sinks={"books": books})
    runtime, stop = Runtime(config), asyncio.Event()
    task = asyncio.create_task(runtime.run(stop))
    try:
        async with runtime._serving.listeners.listen(LOCAL) as mounts, Clients() as clients:
            client = await clients.connect(mounts.port)
            # The page is read only after the ledger is written, because it is cached for a minute.
            async with asyncio.timeout(20):
                while not await asyncio.to_thread(_accounted, path, capsys):
                    await asyncio.sleep(0.1)
            found = await status_when(client, lambda d: d["usage"] and d["usage"]["day"])
    finally:
        stop.set()
        await task
    day = found["usage"]["day"]
    text = await asyncio.to_thread(_printed, path, capsys)
    printed = json.loads(text, parse_float=Decimal)
    assert day["accounted_seconds"] == 60
    assert _accounted_total(printed["total"]) == 60
    for name in ("held_seconds", "free_seconds", "unknown_seconds"):
        assert day["total"][name] == pytest.approx(float(printed["total"][name]), abs=0.001)
    assert day["total"]["energy_joules"] == printed["total"]["energy_joules"] == 6000
    assert printed["node"] == "node-1"
    [shown] = day["devices"]
    text = await asyncio.to_thread(_printed, path, capsys, "--by", "device")
    [row] = json.loads(text)["rows"]
    assert shown["uuid"] == row["device"] == uuid_of(0)
    for name in ("held_seconds", "free_seconds", "unknown_seconds", "busy_seconds"):
        assert shown[name] == pytest.approx(row[name], abs=0.001)
    for name in ("allocated_ratio", "used_ratio"):
        assert shown[name] == pytest.approx(row[name], abs=1e-6)


def _printed(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    run_command(["usage", "--ledger", str(path), "--since", "1d", "--format", "json", *more])
    return capsys.readouterr().out


def _accounted(path: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    text = _printed(path, capsys)
    return bool(text) and _accounted_total(json.loads(text)["total"]) == 60


def _accounted_total(total: dict[str, Any]) -> Any:
    """Return the total of held, free and unknown time."""
    return total["held_seconds"] + total["free_seconds"] + total["unknown_seconds"]
