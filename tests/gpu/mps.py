"""Check podgpu's accounts with a real MPS server and three clients that saturate the GPU.

    python3 -m tests.gpu.mps --out DIR [--seconds 24] [--played]

Needs a GPU, root, and the driver's nvidia-cuda-mps-control; no torch, no network. It changes no
setting of the GPU. MPS uses separate folders, and is stopped at the end. `--played` simulates the
GPU, with idle processes as server and clients.

A simulated procfs assigns the processes to pods: it copies the kernel's, with other cgroups. First
a process works without MPS, then three MPS clients work. NVML's output, pages, log and ledger are
written to DIR. At the end the script prints all faults; its status is 1 if there are any. It ends
within three minutes.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.processes import free_ports, wait_until
from tests.gpu.mps_workloads import (
    GPU,
    PLAIN,
    SERVER_POD,
    TENANTS,
    UIDS,
    Driver,
    PlayedWorks,
    Procfs,
    RealWorks,
    Works,
    ended,
)
from tests.gpu.pages import Page, next_look
from tests.gpu.report import Report

LONGEST: Final = 170
"""Timeout of the script in seconds."""
ACCOUNTS: Final = ("busy_seconds_total", "energy_joules_total")


def configured(out: Path, port: int, uuid: str) -> Path:
    """Write podgpu's configuration: three pods hold the GPU."""
    held = [
        {"name": pod, "namespace": "ml", "container": "main", "gpu_list": [uuid]} for pod in TENANTS
    ]
    (out / "podlist.json").write_text(json.dumps(held))
    gpus = {
        "kind": "nvml",
        "interval": "1s",
        "usage_interval": "2s",
        "devices": f"g:{GPU}",
        "proc": str(out / "proc"),
    }
    config = {
        "node": "gpu-node",
        "sources": {
            "gpus": gpus,
            "list": {"kind": "podlist", "path": str(out / "podlist.json")},
        },
        "sinks": {
            "page": {"kind": "prometheus", "listen": f"127.0.0.1:{port}"},
            "ledger": {"kind": "ledger", "path": str(out / "ledger.db"), "commit_interval": "1s"},
            "lines": {"kind": "jsonl", "path": str(out / "lines.jsonl")},
        },
    }
    path = out / "podgpu.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def series(page: Page, family: str) -> dict[str, Decimal]:
    """Return the values of a container metric by pod name."""
    names = {uid: pod for pod, uid in UIDS.items()}
    found = {}
    for (name, pairs), value in page.samples.items():
        if name == f"podgpu_container_{family}":
            labels = dict(pairs)
            whose = names.get(labels.get("pod_uid", ""), "")
            found[whose or f"holder {labels['pod']}"] = value
    return found


def phase(
    name: str,
    port: int,
    driver: Driver,
    works: Works,
    pids: Sequence[int],
    *,
    seconds: float,
    out: Path,
) -> dict[str, Any]:
    """Work for a while; return the values of NVML and of podgpu."""
    driver.says()
    time.sleep(3)
    before = next_look(port)
    end, output = time.monotonic() + seconds, []
    while time.monotonic() < end:
        time.sleep(3)
        output.append(driver.says())
    after = next_look(port)
    (out / f"nvml-{name}.json").write_text(json.dumps(output, indent=1))
    (out / f"page-{name}.txt").write_text(after.text)
    passed = after.at - before.at
    device = {
        what: float(after.of_device(family) - before.of_device(family))
        for what, family in (
            ("busy", "podgpu_device_busy_seconds_total"),
            ("energy", "podgpu_device_unattributed_energy_joules_total"),
            ("unattributed_busy", "podgpu_device_unattributed_busy_seconds_total"),
        )
    }
    families = (*ACCOUNTS, "held_seconds_total", "memory_used_bytes")
    return {
        "seconds": round(passed, 2),
        "nvml": output[-1],
        "work": works.truth(pids, before.at, after.at),
        "device": device,
        "containers": {
            one: {w: float(v) for w, v in series(after, one).items()} for one in families
        },
    }


def plain_faults(found: Mapping[str, Any]) -> Iterator[str]:
    busy = found["containers"]["busy_seconds_total"].get(PLAIN)
    if not busy or busy < found["seconds"] / 2:
        yield f"without MPS {PLAIN} was busy for {busy} s of {found['seconds']}"


def mps_faults(
    found: Mapping[str, Any], server: int, clients: Sequence[int], before: Mapping[str, Any]
) -> Iterator[str]:
    listed = found["nvml"]["lists"]
    if not set(clients) <= set(listed["mps"]):
        yield f"NVML's list of MPS clients is {listed['mps']}, without some of {clients}"
    if found["nvml"]["processes"].get(server, {}).get("comm") != "nvidia-cuda-mps":
        yield f"the server {server} has another name: {found['nvml']['processes']}"
    for family in ACCOUNTS:
        for pod, value in found["containers"][family].items():
            if pod == PLAIN:
                if value < before["containers"][family].get(PLAIN, 0):
                    yield f"{family} of {PLAIN} fell to {value}"
            elif value == 0 or not pod.startswith("holder"):
                yield f"{pod} has {value} {family} under MPS"
    for pod in TENANTS:
        if not found["containers"]["memory_used_bytes"].get(pod):
            yield f"{pod} has no memory"
    busy, no_one = found["device"]["busy"], found["device"]["unattributed_busy"]
    if busy < 0.8 * found["seconds"]:
        yield f"the device was busy for {busy} s of {found['seconds']}"
    if abs(busy - no_one) > 0.01:
        yield f"of {busy} s busy {no_one} s are unattributed"
    if found["device"]["energy"] <= 0:
        yield "no energy is unattributed"


def ledger_report(out: Path) -> dict[str, Any]:
    """Return the ledger's data of the containers under MPS, and faults in it."""
    result: dict[str, Any] = {}
    for words in (["--by", "pod", "--format", "csv"], ["--holdings", "--format", "json"]):
        done = subprocess.run(
            [sys.executable, "-m", "podgpu", "usage", "--ledger", str(out / "ledger.db"), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        result[" ".join(words)] = (done.stdout + done.stderr).splitlines()
    holdings = json.loads("\n".join(result.pop("--holdings --format json")))
    uids = {UIDS[pod]: pod for pod in (SERVER_POD, *TENANTS)}
    text = json.dumps(holdings)
    result["holdings"] = holdings if len(text) < 8000 else text[:8000]
    rows = [row for row in _dicts(holdings) if uids.keys() & set(map(str, row.values()))]
    result["faults"] = [
        f"a holding of {row} says {key}"
        for row in rows
        for key, value in row.items()
        if re.search("busy|energy", key) and value is not None
    ]
    if not rows:
        result["faults"].append("the ledger has no holding of a client")
    return result


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for child in children:
        yield from _dicts(child)


def show(
    out: Path, report: Report, ends: ExitStack, seconds: float, *, played: bool
) -> dict[str, Any]:
    """Run all steps; return the uuid of the GPU."""
    works: Works = PlayedWorks(out, ends) if played else RealWorks(out, ends)
    if isinstance(works, PlayedWorks):
        works.fake.load_in_process()
    driver, procfs, (port,) = Driver(), Procfs(out / "proc"), free_ports(1)
    ends.enter_context(procfs.followed())
    with (out / "podgpu.log").open("wb") as log:
        podgpu = subprocess.Popen(
            [sys.executable, "-m", "podgpu", "run", "-c", configured(out, port, driver.uuid)],
            stderr=log,
            env={**os.environ, **works.env},
        )
    ends.callback(ended, podgpu)
    wait_until(lambda: _page(port), "podgpu's page", 30)
    plain = works.plain()
    procfs.pods[plain] = PLAIN
    report.add("plain", lambda: phase(PLAIN, port, driver, works, [plain], seconds=8, out=out))
    works.end([plain])
    server, clients = works.mps()
    procfs.pods.update({server: SERVER_POD, **dict(zip(clients, TENANTS, strict=True))})
    report.add("mps", lambda: phase("mps", port, driver, works, clients, seconds=seconds, out=out))
    found = report.figures
    faults = {
        "plain": lambda: [*plain_faults(found["plain"])],
        "mps": lambda: [*mps_faults(found["mps"], server, clients, found["plain"])],
    }
    for name, find in faults.items():
        report.add(f"{name}_faults", lambda find=find: {"faults": find()})  # type: ignore[misc]
    ended(podgpu)
    report.add("reported", lambda: ledger_report(out))
    lines = (out / "podgpu.log").read_text().splitlines()
    report.add(
        "log",
        lambda: {
            "lines": lines[-40:],
            "faults": [line for line in lines if "Traceback" in line],
            "status": podgpu.returncode,
        },
    )
    return {"gpu": driver.uuid}


def _page(port: int) -> bool:
    try:
        return bool(Page(port).accounted())
    except OSError:
        return False


def _late(_number: int, _frame: object) -> None:
    raise TimeoutError(f"not finished within {LONGEST} s")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=24, help="of work under MPS")
    parser.add_argument("--played", action="store_true", help="simulate the GPU")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out / "mps.json")
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(LONGEST)
    with ExitStack() as ends:
        ends.callback(signal.alarm, 0)
        report.add(
            "all",
            lambda: show(out, report, ends, arguments.seconds, played=arguments.played),
        )
    return report.conclude()


if __name__ == "__main__":
    sys.exit(main())
