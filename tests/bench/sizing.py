"""Measure the simulated figures of `docs/sizing.md`: `python -m tests.bench.sizing`.

podgpu runs as a separate process on the simulated driver library. The sizes of pages, lines and
queues are those of a real node of that shape; memory is that of this machine's Python and
libraries, without the part of the real driver's library. Processor time would mean nothing here
and is not measured. It takes three minutes.
"""

import asyncio
import gzip
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from tests.e2e.processes import free_ports
from tests.fakes.dcgm.build import build as build_dcgm
from tests.fakes.dcgm.scenario import Card
from tests.fakes.dcgm.scenario import Scenario as Engine
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.nri.runtime import FakeRuntime
from tests.fakes.nvml import FakeNvml, Scenario, h100s, mig_node
from tests.sources.checkpoint.checkpoints import checkpoint, entry
from tests.sources.pods.pod_objects import raw_pod
from tests.support.kube import ApiServer, Collection

ROOT: Final = Path(__file__).parents[2]
WATCHED_SECONDS: Final = 65.0
"""The time of a measurement; it contains two slow rounds of the default interval."""

SETTLED: Final = 12.0
"""Seconds after which memory is measured: two rounds and as many scrapes."""

PARALLEL: Final = 4
"""The number of simultaneous processes."""

EVERYTHING: Final = {"also": ["all"]}
PODS, SLICES = "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceslices"
NODE: Final = "/api/v1/nodes/node-1"

ENGINE: Final = Engine((Card(0, values={1001: 0.5}),))
"""The data of DCGM's host engine for the source `hostengine`."""

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """A size of a node.

    Attributes:
        name: its name in the output.
        scenario: the scenario of the simulated driver.
        gpus: the number of GPUs.
        instances: the number of all MIG instances.
    """

    name: str
    scenario: Scenario
    gpus: int
    instances: int = 0

    @property
    def devices(self) -> list[str]:
        """The UUIDs of the devices that containers can hold."""
        return [
            device
            for gpu in self.scenario.gpus
            for device in ([mig.uuid for mig in gpu.mig] if gpu.mig else [gpu.uuid])
        ]


SIZES: Final = (
    Size("1 GPU", h100s(1), 1),
    Size("4 GPUs", h100s(4), 4),
    Size("8 GPUs", h100s(8), 8),
    Size("8 GPUs with 7 MIG instances each", mig_node(), 8, 56),
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of metrics.

    Attributes:
        series: the number of samples.
        plain: its size in bytes.
        packed: its size in bytes with gzip, as podgpu sends it.
    """

    series: int
    plain: int
    packed: int


class Daemon:
    """A running podgpu, with access to its page, log and memory."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, port: int) -> None:
        self.folder = folder
        self._process = process
        self._url = f"http://127.0.0.1:{port}"

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    @property
    def resident(self) -> float:
        """Megabytes of memory (VmRSS)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1000

    @property
    def log(self) -> bytes:
        return (self.folder / "podgpu.log").read_bytes()

    async def get(self, path: str, **headers: str) -> bytes:
        # The client must not decompress the response.
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.get(self._url + path, headers=headers) as answer,
        ):
            assert answer.status == 200, answer
            return await answer.read()

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while True:
                assert self.running, self.log.decode()
                try:
                    await self.get("/readyz")
                except (OSError, AssertionError):
                    await asyncio.sleep(0.2)
                else:
                    return

    async def page(self) -> Page:
        plain = await self.get("/metrics", **{"Accept-Encoding": "identity"})
        packed = await self.get("/metrics", **{"Accept-Encoding": "gzip"})
        assert gzip.decompress(packed)
        series = sum(not line.startswith(b"#") for line in plain.splitlines())
        return Page(series, len(plain), len(packed))

    async def value(self, name: str) -> float:
        text = (await self.get("/metrics", **{"Accept-Encoding": "identity"})).decode()
        return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)))


@asynccontextmanager
async def running(scenario: Scenario, config: Config, folder: Path) -> AsyncIterator[Daemon]:
    """Run podgpu with a metrics page and the components of the configuration."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    metrics = {"kind": "prometheus", "listen": f"127.0.0.1:{port}"}
    whole = {"node": "node-1", **config, "sinks": {"metrics": metrics, **config.get("sinks", {})}}
    file = folder / "podgpu.yaml"
    file.write_text(yaml.safe_dump(whole, sort_keys=False))
    engine = folder / "dcgm.txt"
    engine.write_text("".join(f"{line}\n" for line in ENGINE.lines()))
    with (folder / "podgpu.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "podgpu", "run", "-c", file, "--allow-configured-code",
            env={
                **os.environ, **FakeNvml(scenario, folder).env(),
                "FAKEDCGM_SCENARIO": str(engine), "MALLOC_ARENA_MAX": "2",
                "PYTHONPATH": str(ROOT),
            },
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        daemon = Daemon(process, folder, port)
        await daemon.ready()
        yield daemon
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def podlist(folder: Path, holders: Mapping[str, Sequence[str]]) -> Config:
    """Write a file with the devices of each pod; return the source that reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [
        {"name": pod, "namespace": "research", "container": "main", "gpu_list": list(devices)}
        for pod, devices in holders.items()
    ]
    path = folder / "podlist.json"
    path.write_text(json.dumps(entries))
    return {"kind": "podlist", "path": str(path)}


async def page_of(size: Size, holders: int, counters: Config, folder: Path) -> Page:
    """Return the page of a node whose devices have this number of holders each."""
    held = {
        f"train-{at}-{number}": [device]
        for at, device in enumerate(size.devices)
        for number in range(holders)
    }
    sources: Config = {"gpus": {"kind": "nvml", "interval": "1s", "slow_interval": "1s"}}
    sources["list"] = podlist(folder.with_name(f"{folder.name}-pods"), held)
    config = {"sources": sources, "counters": counters}
    async with running(size.scenario, config, folder) as daemon:
        await asyncio.sleep(SETTLED / 2)
        return await daemon.page()


@dataclass(frozen=True, slots=True)
class Flow:
    """Amounts of data.

    Attributes:
        lines: bytes of the sink `jsonl` in an hour.
        queue: bytes in the queue of the sink `otlp` in an hour without a receiver.
        log: bytes of the log in `WATCHED_SECONDS`, including the start.
        steady: bytes of the log in the second half of that time.
        resident: megabytes of memory.
    """

    lines: float
    queue: float
    log: int
    steady: int
    resident: float


async def flow_of(size: Size, folder: Path) -> Flow:
    """Run a node of this size with the default intervals, each device held by one pod."""
    held = {f"train-{at}": [device] for at, device in enumerate(size.devices)}
    (unused_port,) = free_ports(1)
    files = folder.with_name(f"{folder.name}-files")
    config = {
        "sources": {"gpus": {"kind": "nvml"}, "list": podlist(files, held)},
        "sinks": {
            "lines": {"kind": "jsonl", "path": str(files / "gpu.jsonl")},
            "away": {
                "kind": "otlp",
                "endpoint": f"http://127.0.0.1:{unused_port}",
                "queue": {"path": str(files / "queue")},
            },
        },
    }
    async with running(size.scenario, config, folder) as daemon:
        await asyncio.sleep(5)
        written, queued = (files / "gpu.jsonl").stat().st_size, await daemon.value(QUEUE)
        await asyncio.sleep(WATCHED_SECONDS / 2 - 5)
        half = len(daemon.log)
        await asyncio.sleep(WATCHED_SECONDS / 2)
        seconds = WATCHED_SECONDS - 5
        lines = ((files / "gpu.jsonl").stat().st_size - written) / seconds * 3600
        queue = (await daemon.value(QUEUE) - queued) / seconds * 3600
        whole = len(daemon.log)
        return Flow(lines, queue, whole, whole - half, daemon.resident)


QUEUE: Final = "podgpu_sink_queue_bytes"


@asynccontextmanager
async def components(folder: Path) -> AsyncIterator[dict[str, Config]]:
    """Serve the APIs and files for each source and sink; yield their configurations by name."""
    folder.mkdir(parents=True)
    server = ApiServer({PODS: Collection(), SLICES: Collection(), NODE: Collection()})
    for at in range(50):
        pod = raw_pod()
        pod["metadata"] |= {"name": f"pod-{at}", "uid": f"uid-{at}"}
        server.paths[PODS].put(pod)
    (folder / "checkpoint").write_bytes(checkpoint(entry()))
    (folder / "dcgm.prom").write_text('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0"} 30\n')
    (unused_port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.serving())
        kubelet = await stack.enter_async_context(FakeKubelet(folder / "kubelet.sock"))
        kubelet.offered = {"nvidia.com/gpu": ["GPU-0"]}
        stack.enter_context(FakeRuntime(folder / "nri.sock"))
        here = {"kubeconfig": str(server.kubeconfig(folder / "kubeconfig"))}
        target = f"http://127.0.0.1:{unused_port}"
        sources: Config = {
            "podresources": {"sockets": [str(folder / "kubelet.sock")]},
            "checkpoint": {"path": str(folder / "checkpoint")},
            "pods": here,
            "podlist": {"path": podlist(folder / "read", {"a": ["GPU-0"]})["path"]},
            "nri": {"socket": str(folder / "nri.sock")},
            "dcgm": {"path": str(folder / "dcgm.prom"), "max_age": "1d"},
            "hostengine": {"library": str(build_dcgm()), "fields": "all"},
        }
        sinks: Config = {
            "textfile": {"path": str(folder / "podgpu.prom"), "interval": "1s"},
            "jsonl": {"path": str(folder / "gpu.jsonl")},
            "otlp": {"endpoint": target, "protocol": "grpc"},
            "otlp (HTTP)": {"endpoint": target, "protocol": "http/protobuf"},
            "podlist": {"path": str(folder / "podlist.json")},
            "node": here,
            "pods": here,
        }
        configurations: dict[str, Config] = {"only nvml and prometheus": {}}
        for name, options in sources.items():
            configurations[f"source {name}"] = {"sources": {"more": {"kind": name, **options}}}
        for name, options in sinks.items():
            configurations[f"sink {name}"] = {
                "sinks": {"more": {"kind": name.split()[0], **options}}
            }
        preset = {
            name: {"kind": name, **sources[name]} for name in ("podresources", "checkpoint", "pods")
        }
        configurations["the chart's preset kubernetes"] = {"sources": preset}
        configurations["the preset with nri, node, pods and otlp"] = {
            "sources": {**preset, "nri": {"kind": "nri", **sources["nri"]}},
            "sinks": {name: {"kind": name, **sinks[name]} for name in ("node", "pods", "otlp")},
        }
        yield configurations


async def resident(config: Config, folder: Path) -> float:
    """Return the memory of a podgpu with four GPUs and these components in addition, in MB."""
    sources = {"gpus": {"kind": "nvml", "interval": "1s"}, **config.get("sources", {})}
    async with running(SIZES[1].scenario, {**config, "sources": sources}, folder) as daemon:
        for _ in range(4):
            await daemon.page()
            await asyncio.sleep(SETTLED / 4)
        assert await daemon.value("podgpu_source_up") == len(sources), daemon.log.decode()
        return daemon.resident


def _ignore_cancelled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


async def main() -> None:
    """Measure, and print the tables of `docs/sizing.md`."""
    limit = asyncio.Semaphore(PARALLEL)
    # The API server's streams are cancelled at the end, which asyncio reports as an error.
    asyncio.get_running_loop().set_exception_handler(_ignore_cancelled)

    async def one(work: Any) -> Any:
        async with limit:
            return await work

    with tempfile.TemporaryDirectory(prefix="podgpu-sizing-") as name:
        top = Path(name)
        plans: list[tuple[str, int, Config]] = [
            ("no holders", 0, {}),
            ("one holder each", 1, {}),
            ("three holders each", 3, {}),
            ("one holder each, all fields", 1, EVERYTHING),
        ]
        pages = await asyncio.gather(
            *(
                one(page_of(size, count, counters, top / f"page-{at}-{number}"))
                for at, size in enumerate(SIZES)
                for number, (_, count, counters) in enumerate(plans)
            )
        )
        flows = await asyncio.gather(
            *(one(flow_of(size, top / f"flow-{at}")) for at, size in enumerate(SIZES))
        )
        async with components(top / "served") as made:
            sizes = await asyncio.gather(
                *(one(resident(each, top / f"rss-{at}")) for at, each in enumerate(made.values()))
            )
    print("| node | devices | | series | kB | kB packed |\n|---|---|---|---|---|---|")
    for at, size in enumerate(SIZES):
        for number, (title, _, _) in enumerate(plans):
            page = pages[at * len(plans) + number]
            print(
                f"| {size.name} | {len(size.devices)} | {title} | {page.series} "
                f"| {page.plain / 1e3:.1f} | {page.packed / 1e3:.1f} |"
            )
    print("\n| node | lines, MB an hour | queue, MB an hour | log, kB | later | memory, MB |")
    print("|---|---|---|---|---|---|")
    for size, flow in zip(SIZES, flows, strict=True):
        print(
            f"| {size.name} | {flow.lines / 1e6:.2f} | {flow.queue / 1e6:.2f} "
            f"| {flow.log / 1e3:.2f} | {flow.steady / 1e3:.2f} | {flow.resident:.0f} |"
        )
    print("\n| configured | MB | more |\n|---|---|---|")
    for title, megabytes in zip(made, sizes, strict=True):
        print(f"| {title} | {megabytes:.0f} | {megabytes - sizes[0]:+.1f} |")


if __name__ == "__main__":
    asyncio.run(main())
