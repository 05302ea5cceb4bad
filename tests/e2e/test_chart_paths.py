"""Host folders that the chart mounts for configured paths, and folders that it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.charts import Values, sink, source
from tests.e2e.helm import Helm, HelmError

Says = Callable[[str], Values]

PLACES: list[tuple[str, Says]] = [
    ("config.sinks.x.path", lambda path: sink("x", kind="jsonl", path=path)),
    ("config.sinks.x.path", lambda path: sink("x", kind="textfile", path=path)),
    ("config.sinks.x.path", lambda path: sink("x", kind="podlist", path=path)),
    ("config.sources.x.path", lambda path: source("x", kind="podlist", path=path)),
    ("config.sources.x.path", lambda path: source("x", kind="dcgm", path=path)),
    ("config.sources.x.path", lambda path: source("x", kind="checkpoint", path=path)),
    ("config.sources.x.socket", lambda path: source("x", kind="nri", socket=path)),
    ("config.sources.x.sockets", lambda path: source("x", kind="podresources", sockets=[path])),
    ("config.sources.x.address", lambda path: source("x", kind="hostengine", address=path)),
    (
        "config.sources.x.address",
        lambda path: source("x", kind="hostengine", address=f"unix://{path}"),
    ),
    ("arguments: -r", lambda path: {"arguments": ["-r", f"unix://{path}"]}),
    (
        "arguments: --pod-resources-kubelet-socket",
        lambda path: {"arguments": ["--pod-resources-kubelet-socket", path]},
    ),
]
FILES = [(place, says) for place, says in PLACES if place.startswith("config")]

each_place = pytest.mark.parametrize(
    ("place", "says"), PLACES, ids=[str(says("/p"))[:60] for _, says in PLACES]
)
each_file = pytest.mark.parametrize(
    ("place", "says"), FILES, ids=[str(says("/p"))[:60] for _, says in FILES]
)


def queue(path: str) -> Values:
    return sink("x", kind="otlp", queue={"path": path})


def bare(values: Values) -> Values:
    """Add the preset that mounts no folder."""
    return {"preset": "gpus", **values}


def folders(helm: Helm, values: Values) -> dict[str, str]:
    """Return the mounted host folders by path in the container."""
    return {path: host for path, (host, _) in helm.template(values).mounts.items()}


def refused(helm: Helm, values: Values) -> str:
    with pytest.raises(HelmError) as caught:
        helm.template(values)
    return str(caught.value)


@each_place
@pytest.mark.parametrize("folder", ["/", "/run/", "/var/run/", "/tmp/", "/var/log/"])
def test_a_shared_system_folder_is_refused(helm: Helm, place: str, says: Says, folder: str) -> None:
    message = refused(helm, bare(says(f"{folder}podgpu.it")))
    assert place in message
    assert f"all of {folder.rstrip('/') or '/'} would be mounted" in message
    assert "use a separate folder" in message


COMMON = [
    *("/", "/bin", "/boot", "/dev", "/dev/shm", "/etc", "/etc/kubernetes/manifests", "/home"),
    *("/lib", "/lib64", "/media", "/mnt", "/opt", "/proc/1", "/root", "/run", "/run/containerd"),
    *("/run/secrets/kubernetes.io/serviceaccount", "/sbin", "/srv", "/sys/fs/cgroup", "/tmp"),
    *("/usr", "/usr/lib", "/usr/local/bin", "/usr/lib/x86_64-linux-gnu", "/var", "/var/lib"),
    *("/var/lib/containerd", "/var/lib/kubelet", "/var/log", "/var/log/pods", "/var/run"),
    *("/var/run/containerd", "/var/tmp", "/var/log/../run", "//run//", "/var/log/podgpu/.."),
    # Folders of podgpu and of the chart's mounts.
    *("/opt/podgpu", "/opt/podgpu/bin", "/etc/podgpu", "/etc/podgpu-web", "/opt/podgpu-driver"),
]


@pytest.mark.parametrize("folder", COMMON)
def test_system_folders_are_refused(helm: Helm, folder: str) -> None:
    for values in (queue(folder), sink("x", kind="jsonl", path=f"{folder}/x")):
        assert " would be mounted" in refused(helm, bare(values))


@pytest.mark.parametrize(
    "folder",
    [
        *("/data", "/queue", "/var/lib/podgpu", "/var/log/podgpu", "/run/nv-hostengine"),
        *("/var/lib/node_exporter/textfile", "/var/lib/kubelet/pod-resources", "/tmp/engine"),
        *("/opt/monitoring", "/home/gpu", "/mnt/disk0/queue", "/etc/monitoring"),
    ],
)
def test_a_dedicated_folder_is_mounted(helm: Helm, folder: str) -> None:
    assert folders(helm, bare(queue(folder))) == {folder: folder}
    assert folders(helm, bare(sink("x", kind="jsonl", path=f"{folder}/x"))) == {folder: folder}


def test_the_whole_kubelet_folder_is_refused(helm: Helm) -> None:
    message = refused(helm, {"kubeletPath": "/var/lib/kubelet"})
    assert 'kubeletPath: for "/var/lib/kubelet" all of /var/lib/kubelet would be mounted' in message


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/var/log/podgpu/${NODE_NAME}/x.jsonl", "/var/log/podgpu"),
        ("/var/log/podgpu/${NODE_NAME}.jsonl", "/var/log/podgpu"),
        ("/var/log/podgpu/gpu-${NODE_NAME:-none}.jsonl", "/var/log/podgpu"),
        ("/var/log/podgpu/a/../${A}/${B}", "/var/log/podgpu"),
        ("/var/log/podgpu/$${x}", "/var/log/podgpu"),
        ("/var/log//podgpu/./x.jsonl", "/var/log/podgpu"),
    ],
)
@each_file
def test_the_folder_before_a_variable_in_a_path_is_mounted(
    helm: Helm, place: str, says: Says, path: str, folder: str
) -> None:
    assert place
    assert folders(helm, bare(says(path))) == {folder: folder}


def test_the_folder_before_a_variable_in_a_queue_path_is_mounted(helm: Helm) -> None:
    wanted = {"/var/lib/podgpu": "/var/lib/podgpu"}
    assert folders(helm, bare(queue("/var/lib/podgpu/${NODE_NAME}"))) == wanted
    assert folders(helm, bare(queue("/var/lib/podgpu/"))) == wanted


@pytest.mark.parametrize("path", ["lines.jsonl", "./x/y", "${FOLDER}/x", "${FOLDER:-/var/a}/x"])
@each_file
def test_a_relative_path_is_refused(helm: Helm, place: str, says: Says, path: str) -> None:
    if place.endswith(".address"):
        # It may be a host name.
        assert folders(helm, bare(says(path))) == {}
        return
    message = refused(helm, bare(says(path)))
    assert place in message
    assert "write an absolute path" in message


MOUNTED: list[tuple[str, Any]] = [
    ("/run", {"name": "it", "mountPath": "/run"}),
    ("/run/nv.sock", {"name": "it", "mountPath": "/run/nv.sock"}),
    ("/run/a/b/nv.sock", {"name": "it", "mountPath": "/run/a/"}),
]


@pytest.mark.parametrize(("path", "mount"), MOUNTED, ids=[path for path, _ in MOUNTED])
def test_no_volume_is_added_below_an_own_mount(helm: Helm, path: str, mount: Any) -> None:
    """This includes folders that the chart would refuse, and paths below the mount."""
    file = path if path.endswith(".sock") else f"{path}/nv.sock"
    values: Values = {
        **source("engine", kind="hostengine", address=f"unix://{file}"),
        "extraConfigMapVolumes": [{"name": "it", "emptyDir": {}}],
        "extraVolumeMounts": [mount],
    }
    assert folders(helm, bare(values)) == {}


def test_a_library_with_an_own_volume_is_mounted_once(helm: Helm) -> None:
    library = "/usr/lib/libdcgm.so.4"
    values = bare(source("engine", kind="hostengine", library=library))
    assert folders(helm, values) == {library: library}
    volume = {"name": "it", "emptyDir": {}}
    mount = {"name": "it", "mountPath": library}
    more: Values = {"extraConfigMapVolumes": [volume], "extraVolumeMounts": [mount]}
    assert folders(helm, {**values, **more}) == {}
