"""Make the recording of `podgpu demo` on a machine with four GPUs.

    python3 -m tests.gpu.make_recording OUTPUT [--scale 1.0]

It takes four to five minutes: idle GPUs, a job on all GPUs, two processes that share a GPU, and a
third one on another GPU; a podlist.json names changing pods. UUIDs, serial numbers and the cluster
of the fabric are replaced, so that the recording does not identify real GPUs.
"""

import argparse
import gzip
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

LOAD = Path(__file__).with_name("load.py")
CONFIG = """\
node: gpu-node-1
sources:
  gpus: {{kind: nvml, interval: 1s, slow_interval: 10s}}
  podlist: {{kind: podlist, path: {podlist}}}
sinks:
  unused: {{kind: jsonl, path: "-"}}
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    scale: float = arguments.scale
    uuids = subprocess.run(
        ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    with TemporaryDirectory() as folder:
        podlist = Path(folder) / "podlist.json"
        config = Path(folder) / "podgpu.yaml"
        config.write_text(CONFIG.format(podlist=podlist))

        def hold(held: dict[tuple[str, str], list[str]]) -> None:
            entries = [
                {"name": pod, "namespace": namespace, "container": "main", "gpu_list": ids}
                for (namespace, pod), ids in held.items()
            ]
            new = podlist.with_suffix(".new")
            new.write_text(json.dumps(entries))
            new.replace(podlist)

        def work(*words: object) -> "subprocess.Popen[bytes]":
            return subprocess.Popen([sys.executable, str(LOAD), *map(str, words)])

        def wait(seconds: float) -> None:
            time.sleep(seconds * scale)

        hold({})
        recorder = subprocess.Popen(
            [sys.executable, "-m", "podgpu", "record", "-f", "-c", config, "-o", arguments.output]
        )
        wait(20)
        hold({("research", "pretrain-0"): uuids})
        wait(5)
        job = work("nccl", 75 * scale)
        job.wait()
        hold({})
        wait(12)
        server = ("serving", "chat-7c9d"), [uuids[1]]
        hold(dict([server]))
        first = work("share", 95 * scale, 1, 0.3)
        wait(20)
        hold(dict([server, (("serving", "embed-5f6b"), [uuids[1]])]))
        second = work("share", 60 * scale, 1, 0.5)
        wait(10)
        hold(
            dict(
                [
                    server,
                    (("serving", "embed-5f6b"), [uuids[1]]),
                    (("research", "notebook-0"), ["3"]),
                ]
            )
        )
        third = work("share", 30 * scale, 3, 0.9)
        third.wait()
        second.wait()
        hold(dict([server, (("research", "notebook-0"), ["3"])]))
        first.wait()
        hold({})
        wait(20)
        recorder.terminate()
        status = recorder.wait(30)
    rename(arguments.output, uuids, podlist)
    return status


def rename(recording: Path, uuids: list[str], podlist: Path) -> None:
    """Replace identifiers of the GPUs by others of the same form, and the path of podlist.json."""
    text = gzip.decompress(recording.read_bytes()).decode()
    text = text.replace(str(podlist), "/var/lib/kubelet/pod-resources/podlist.json")
    for index, uuid in enumerate(uuids):
        text = text.replace(uuid, f"GPU-{index:08x}-5eed-4a5e-9c0d-100000000000")
    for index, serial in enumerate(sorted(set(re.findall(r'\["serial","([^"]+)"\]', text)))):
        text = text.replace(f'"{serial}"', f'"{1650000000000 + index}"')
    for index, cluster in enumerate(sorted(set(re.findall(r'"cluster":"([^"]+)"', text)))):
        text = text.replace(cluster, f"5eed0000-0000-4000-8000-{index:012d}")
    recording.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
