"""Scenarios on a node with GPUs: programs that run, end, and use substituted devices."""

from pathlib import Path

from tests.e2e.kube import kubelet_state
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.processes import get
from tests.e2e.watched_podgpu import Owner
from tests.gpu.gpu_node import SOON, Figures, Stage
from tests.gpu.programs import program

_ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def computing(stage: Stage, folder: Path) -> Figures:
    """Pods compute on up to two GPUs; then a pod holds a GPU without using it."""
    sizes = {"train": 4096, "serve": 8192}
    figures: Figures = {}
    running: dict[str, list[Owner]] = {}
    for name, size in sizes.items():
        owner, gpu = stage.started(program(name, size, namespace=f"team-{name}"))
        running[gpu] = [owner]
        stage.expect(running)
        figures[name] = {"pids": stage.agree(running), **stage.busy(gpu, owner, size)}
        (folder / "page-busy.txt").write_bytes(get(stage.podgpu.port, "/metrics").body)
        if len(running) == len(stage.minors):
            del running[gpu]
            stage.gone(owner)
            stage.expect(running)
    stage.agree(running)
    made = stage.kube.run(gpu_pod("notebook", namespace="team-idle"))["metadata"]
    owner = Owner("notebook", "main", made["uid"], "team-idle")
    (gpu,) = stage.plugin.asked[-1]
    stage.expect({**running, gpu: [owner]})
    figures["notebook"] = stage.idle(gpu, owner)
    stage.agree(running)
    for each in [owner, *(one for found in running.values() for one in found)]:
        stage.gone(each)
    stage.expect({})
    stage.agree({})
    for gpu in stage.minors:
        stage.idle(gpu, Owner("", "", "", ""))
    return figures


def ended(stage: Stage, _folder: Path) -> Figures:
    """A program ends: its pod stays in the API and holds nothing."""
    owner, gpu = stage.started(program("job", 1024, seconds=4))
    stage.expect({gpu: [owner]})
    stage.agree({gpu: [owner]})
    stage.kube.api.wait_phase("job", "Succeeded")
    waited = stage.podgpu.wait_owners({}, SOON)
    stage.agree({})
    assert kubelet_state.checkpointed(owner.uid) == {"main": [gpu]}
    stage.podgpu.stays(lambda: stage.podgpu.owners() == {}, 3)
    stage.gone(owner)
    return {"seconds_from_succeeded": round(waited, 3)}


def substituted(stage: Stage, _folder: Path) -> Figures:
    """The device plugin substitutes the GPU: the program uses the other one."""
    if len(stage.minors) < 2:
        return {"left_out": "one GPU"}
    uuids = list(stage.minors)
    instead = dict(zip(uuids, [*uuids[1:], uuids[0]], strict=True))
    stage.plugin.substitute = lambda asked: [instead[gpu] for gpu in asked]
    try:
        owner, gpu = stage.started(program("swapped", 1024))
    finally:
        stage.plugin.substitute = list
    (asked,) = stage.plugin.asked[-1]
    assert kubelet_state.held() == {"swapped": {"main": [asked]}}
    assert gpu == instead[asked]
    stage.expect({gpu: [owner]}, ("checkpoint", "plugin_answer"))
    figures = {"asked": asked, "pids": stage.agree({gpu: [owner]})}
    figures |= stage.busy(gpu, owner, 1024)
    stage.gone(owner)
    stage.expect({})
    return figures


def halves(stage: Stage, _folder: Path) -> Figures:
    """A scheduler allocates half a GPU to each of two pods, without the kubelet."""
    gpu, minor = list(stage.minors.items())[-1]
    share = f'{{"gpu":[{{"minor":{minor},"resources":{{"koordinator.sh/gpu-core":"50"}}}}]}}'
    both = []
    for name in ("half-a", "half-b"):
        made = program(name, 1024, duty=0.5, gpu=gpu, annotations={_ALLOCATED: share})
        owner, on = stage.started(made)
        assert on == gpu
        both.append(owner)
    stage.expect({gpu: both}, ("pods", "scheduler_annotation"))
    pids = stage.agree({gpu: both})
    shares = stage.podgpu.of("podgpu_device_holder_share", UUID=gpu)
    assert sorted((labels["pod"], value) for labels, value in shares) == [
        ("half-a", 0.5),
        ("half-b", 0.5),
    ]
    # The reading has no holder labels, because two pods share the GPU.
    stage.reading("DCGM_FI_DEV_GPU_UTIL", gpu, Owner("", "", "", ""))
    stage.gone(both[0])
    stage.expect({gpu: both[1:]}, ("pods", "scheduler_annotation"))
    stage.agree({gpu: both[1:]})
    figures = {"pids": pids, **stage.busy(gpu, both[1], 1024, above=20)}
    stage.gone(both[1])
    stage.expect({})
    return figures
