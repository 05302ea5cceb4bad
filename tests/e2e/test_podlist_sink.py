"""The sink `podlist` on a node with real kubelet and containerd."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.e2e.watched_podgpu import OFTEN, Owner, WatchedPodgpu, watching

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]
Listed = dict[str, list[str]]


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS)


@contextmanager
def writing(
    kube: Cluster, folder: Path, file: Path, write: str = "rename"
) -> Iterator[WatchedPodgpu]:
    sinks = {"podlist": {"kind": "podlist", "path": str(file), "write": write}}
    kinds = ("podresources", "nri")
    with watching(kube, folder / "podgpu", SCENE, kinds, sinks=sinks) as podgpu:
        yield podgpu


def read(text: str) -> Listed | None:
    """Return devices by pod; None while the file is not valid."""
    try:
        entries = json.loads(text)
    except ValueError:
        return None
    assert all(entry["writer"] == "podgpu" for entry in entries)
    assert all((e["namespace"], e["container"]) == ("default", "main") for e in entries)
    return {entry["name"]: sorted(entry["gpu_list"]) for entry in entries}


def wait_listed(file: Path, expected: Listed) -> None:
    wait_until(lambda: file.exists() and read(file.read_text()) == expected, f"{expected}")
    assert file.stat().st_mode & 0o777 == 0o644


def given(plugin: DevicePlugin) -> list[str]:
    return sorted(plugin.asked[-1])


def test_the_list_is_correct_at_every_step(
    kube: Cluster, plugin: DevicePlugin, tmp_path: Path
) -> None:
    file = tmp_path / "pods" / "podlist.json"
    file.parent.mkdir()
    with writing(kube, tmp_path, file) as podgpu:
        wait_listed(file, {})
        kube.run(gpu_pod("train-0", 2))
        first = given(plugin)
        wait_listed(file, {"train-0": first})
        kube.run(gpu_pod("train-1", 1))
        second = given(plugin)
        wait_listed(file, {"train-0": first, "train-1": second})
        kube.remove("train-1")
        wait_listed(file, {"train-0": first})

        # A killed podgpu leaves the list unchanged; after a restart it recognizes its own entries.
        assert podgpu.process is not None
        podgpu.process.stop(signal.SIGKILL)
        assert read(file.read_text()) == {"train-0": first}
        kube.remove("train-0")
        kube.run(gpu_pod("train-2", 1))
        third = given(plugin)
        podgpu.start()
        wait_listed(file, {"train-2": third})
        kube.remove("train-2")
        wait_listed(file, {})


def test_another_podgpu_can_read_the_list(
    kube: Cluster, plugin: DevicePlugin, tmp_path: Path
) -> None:
    """The reader does not know who wrote the entries, like koordinator's readers."""
    file, copy = tmp_path / "podlist.json", tmp_path / "copy.json"
    with writing(kube, tmp_path, file) as podgpu:
        kube.run(gpu_pod("train-0", 2))
        wait_listed(file, {"train-0": given(plugin)})
        entries = json.loads(file.read_text())
        copy.write_text(json.dumps([{k: e[k] for k in e if k != "writer"} for e in entries]))
        options = {**OFTEN, "podlist": {"path": str(copy)}}
        with watching(kube, tmp_path / "reader", SCENE, ("podlist",), options=options) as reader:
            owner = Owner("train-0", "main", "")
            reader.wait_owners({device: [owner] for device in given(plugin)})
            assert set(reader.owners()) == set(podgpu.owners())


def test_a_reader_with_only_the_file_mounted_sees_every_change(
    kube: Cluster, plugin: DevicePlugin, tmp_path: Path
) -> None:
    """Like koordinator's exporter, which mounts only the file."""
    file, mounted = tmp_path / "podlist.json", tmp_path / "mounted.json"
    file.write_text("[]")
    mounted.touch()
    script = (
        f"mount --bind {file} {mounted} && while read -r _; do tr -d '\\n' < {mounted}; echo; done"
    )
    with writing(kube, tmp_path, file, "inplace"):
        reader = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        try:
            assert reader.stdin is not None
            assert reader.stdout is not None
            stdin, stdout = reader.stdin, reader.stdout

            def seen() -> Listed | None:
                stdin.write("\n")
                stdin.flush()
                return read(stdout.readline())

            wait_until(lambda: seen() == {}, "the list is empty")
            kube.run(gpu_pod("train-0", 3))
            wait_until(lambda: seen() == {"train-0": given(plugin)}, "its entry")
            kube.remove("train-0")
            wait_until(lambda: seen() == {}, "the list is empty again")
        finally:
            reader.communicate(timeout=10)
    assert mounted.read_text() == ""  # the mount exists only in the other namespace
