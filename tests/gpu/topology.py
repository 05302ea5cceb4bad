"""Compare podgpu's topology matrix with nvidia-smi's on a real machine.

python -m tests.gpu.topology
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pynvml

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def podgpu(*arguments: str) -> str:
    return output(sys.executable, "-m", "podgpu", "topology", "--local", *arguments)


def cells(matrix: str) -> dict[tuple[int, int], str]:
    """Return the cells of a matrix by GPU numbers."""
    lines = ESCAPES.sub("", matrix).splitlines()
    start = next(at for at, line in enumerate(lines) if "GPU0" in line.split())
    columns = [name for name in lines[start].split() if re.fullmatch(r"GPU\d+", name)]
    found = {}
    for line in lines[start + 1 :]:
        name, *row = line.split()[: len(columns) + 1] or [""]
        if re.fullmatch(r"GPU\d+", name):
            for column, cell in zip(columns, row, strict=False):
                if column != name:
                    found[int(name[3:]), int(column[3:])] = cell
    return found


def active_links() -> dict[int, int]:
    """Return the number of active NVLinks by GPU, according to `nvidia-smi nvlink`."""
    return links_of(output("nvidia-smi", "nvlink", "-s"))


def links_of(text: str) -> dict[int, int]:
    """Return the number of active NVLinks by GPU in the output of `nvidia-smi nvlink -s`."""
    counts: dict[int, int] = {}
    gpu = -1
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            gpu = int(match[1])
            counts[gpu] = 0
        elif re.search(r"Link \d+: [0-9.]+ GB/s", line):
            counts[gpu] += 1
    return counts


def fabrics_of(text: str) -> list[tuple[int | None, str]]:
    """Return clique and cluster of each GPU in the output of `nvidia-smi -q`.

    The clique is None and the cluster is empty if nvidia-smi shows N/A, or no fabric. A cluster
    without name has only zeros, and is empty here.
    """
    found = []
    for gpu in re.split(r"^GPU [0-9A-F]+:[0-9A-F:.]+$", text, flags=re.MULTILINE)[1:]:
        clique = re.search(r"^ +CliqueId +: (\d+)$", gpu, re.MULTILINE)
        cluster = re.search(r"^ +ClusterUUID +: ([0-9a-fA-F-]+)$", gpu, re.MULTILINE)
        name = cluster[1].lower() if cluster and cluster[1].strip("0-") else ""
        found.append((int(clique[1]) if clique else None, name))
    return found


def different(
    topo: str, nvlink: str, query: str, matrix: str, document: dict[str, Any]
) -> list[str]:
    """Return what differs between nvidia-smi and podgpu, as sentences.

    Args:
        topo: output of `nvidia-smi topo -m`.
        nvlink: output of `nvidia-smi nvlink -s`.
        query: output of `nvidia-smi -q`.
        matrix: output of `podgpu topology`.
        document: output of `podgpu topology --json`.
    """
    theirs, ours = cells(topo), cells(matrix)
    found = [
        f"GPU {a} and {b}: {theirs.get((a, b), 'missing')} in nvidia-smi, "
        f"{ours.get((a, b), 'missing')} in podgpu"
        for a, b in sorted(theirs.keys() | ours.keys())
        if theirs.get((a, b)) != ours.get((a, b))
    ]
    links = links_of(nvlink)
    cliques = fabrics_of(query)
    for at, gpu in enumerate(document["gpus"]):
        counted = gpu.get("links")
        if counted != links.get(at, 0):
            found.append(f"GPU {at}: {links.get(at, 0)} NVLinks in nvidia-smi, {counted} in podgpu")
        cluster = gpu.get("cluster") or ""
        fabric = (gpu.get("clique"), cluster if cluster.strip("0-") else "")
        theirs_fabric = cliques[at] if at < len(cliques) else "no GPU"
        if fabric != theirs_fabric:
            found.append(f"GPU {at}: fabric {theirs_fabric} in nvidia-smi, {fabric} in podgpu")
    for number, pairs in enumerate((theirs, ours)):
        joined = {pair for pair, cell in pairs.items() if cell.startswith("NV")}
        groups = [int(group["mask"], 16) for group in document["nvlink"]]
        apart = [p for p in joined if not any(g >> p[0] & g >> p[1] & 1 for g in groups)]
        if apart:
            source = ("nvidia-smi", "podgpu's matrix")[number]
            found.append(f"NVLinks of {source} between GPUs of no NVLink group: {sorted(apart)}")
    return found


def microseconds(call: Callable[[], object], times: int = 200) -> float:
    """Return the median duration of a call."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        try:
            call()
        except pynvml.NVMLError:
            return -1
        taken.append(time.perf_counter() - begun)
    return round(sorted(taken)[times // 2] * 1e6, 1)


def costs() -> dict[str, float]:
    """Return the durations of the NVML calls for the topology, in microseconds."""
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(count)]
    one, other = handles[0], handles[-1]
    made = {
        "link state": lambda: pynvml.nvmlDeviceGetNvLinkState(one, 0),
        "link remote": lambda: pynvml.nvmlDeviceGetNvLinkRemotePciInfo(one, 0),
    }
    if count > 1:
        made |= {
            "level": lambda: pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other),
            "p2p": lambda: pynvml.nvmlDeviceGetP2PStatus(one, other, 2),
        }
    return {name: microseconds(call) for name, call in made.items()}


def link_counts(document: dict[str, Any]) -> Sequence[Any]:
    return [card.get("links") for card in document["gpus"]]


def main() -> None:
    theirs_text = output("nvidia-smi", "topo", "-m")
    begun = time.monotonic()
    ours_text = podgpu()
    took = time.monotonic() - begun
    document = json.loads(podgpu("--json"))
    print(theirs_text)
    print(ours_text)
    print(json.dumps(document)[:4000])
    theirs, ours = cells(theirs_text), cells(ours_text)
    assert theirs.keys() == ours.keys()
    unlike = {pair: (theirs[pair], ours[pair]) for pair in theirs if theirs[pair] != ours[pair]}
    links = active_links()
    gpus = sorted({at for pair in ours for at in pair}) or [0]
    print(
        json.dumps(
            {
                "gpus": len(gpus),
                "pairs": len(list(combinations(gpus, 2))),
                "unlike": {str(pair): cell for pair, cell in unlike.items()},
                "active links by nvidia-smi": links,
                "active links by podgpu": link_counts(document),
                "podgpu topology, seconds": round(took, 2),
                "microseconds a call": costs(),
            }
        )
    )
    assert not unlike
    assert list(links.values()) == list(link_counts(document))
    for count in range(1, len(gpus) + 1):
        print(podgpu("best", "-n", str(count)))


if __name__ == "__main__":
    main()
