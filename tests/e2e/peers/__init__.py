"""Programs of other projects, built from source: Kubernetes, Collectors, scrapers, release tools.

Each folder is a Go module: go.mod lists the programs as tools, and go.sum has the checksums. Only
the Collectors, which list their components, and the check of dashboards have code. One module for
all is not possible, because the dependencies conflict. Programs are built below build/, and rebuilt
only if the module has changed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_MODULES = Path(__file__).parent
BUILT = _MODULES.parents[2] / "build" / "e2e" / "peers"
_LIMIT = 3600
"""Timeout for one program in seconds; those of Kubernetes take minutes on two cores."""

_KUBERNETES = "v1.37.2"
_VERSION = "k8s.io/component-base/version"
_CONTAINERD = "github.com/containerd/containerd/v2"
_HELM = "helm.sh/helm/v3"
_VICTORIA = "github.com/VictoriaMetrics/VictoriaMetrics"
_VERSION_OF_PROMETHEUS = "github.com/prometheus/common/version.Version"
_NO_CLOUDS = "remove_all_sd"
"""A build tag of Prometheus, without which the libraries of all clouds are compiled."""


@dataclass(frozen=True, slots=True)
class _Module:
    programs: Mapping[str, str]
    """Go packages by program name."""
    tags: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of string variables, for the versions."""


_ALL = {
    "containerd": _Module(
        {
            name: f"{_CONTAINERD}/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        tags="no_btrfs no_devmapper no_zfs",
        values={f"{_CONTAINERD}/version.Version": "v2.4.2"},
    ),
    "etcd": _Module({"etcd": "go.etcd.io/etcd/server/v3"}),
    "kubernetes": _Module(
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kubelet",
                "kube-apiserver",
                "kube-scheduler",
                "kube-controller-manager",
            )
        },
        values={
            f"{_VERSION}.gitVersion": _KUBERNETES,
            f"{_VERSION}.gitMajor": "1",
            f"{_VERSION}.gitMinor": _KUBERNETES.split(".")[1],
        },
    ),
    "collector": _Module({"collector": "podgpu.test/peers/collector"}),
    "prometheus": _Module(
        {
            name: f"github.com/prometheus/prometheus/cmd/{name}"
            for name in ("prometheus", "promtool")
        },
        tags=_NO_CLOUDS,
        values={_VERSION_OF_PROMETHEUS: "3.16.0"},
    ),
    "scraping_collector": _Module(
        {"scraping_collector": "podgpu.test/peers/scraping_collector"},
        tags=_NO_CLOUDS,
    ),
    "vmagent": _Module(
        {"vmagent": f"{_VICTORIA}/app/vmagent"},
        values={f"{_VICTORIA}/lib/buildinfo.Version": "vmagent-v1.148.9"},
    ),
    "victoriametrics": _Module(
        {name: f"{_VICTORIA}/app/{name}" for name in ("victoria-metrics", "vmalert")},
        values={f"{_VICTORIA}/lib/buildinfo.Version": "v1.148.9"},
    ),
    "node_exporter": _Module(
        {"node_exporter": "github.com/prometheus/node_exporter"},
        values={_VERSION_OF_PROMETHEUS: "1.12.1"},
    ),
    "helm": _Module(
        {"helm": f"{_HELM}/cmd/helm"},
        values={
            f"{_HELM}/internal/version.version": "v3.22.0",
            # The Kubernetes version for rendering without a cluster.
            f"{_HELM}/pkg/chartutil.k8sVersionMajor": "1",
            f"{_HELM}/pkg/chartutil.k8sVersionMinor": _KUBERNETES.split(".")[1],
        },
    ),
}
# Grafana's own types of dashboards, in a program that reads files with them.
_ALL["grafana_schema"] = _Module({"grafana_schema": "podgpu.test/peers/grafana_schema"})
# The reference parser of compose files.
_ALL["compose"] = _Module({"compose": "github.com/compose-spec/compose-go/v2/cmd"})
# An S3 server that stores objects as files of a folder.
_ALL["versitygw"] = _Module({"versitygw": "github.com/versity/versitygw/cmd/versitygw"})
_ALL |= {
    "kubectl": _Module(
        {"kubectl": "k8s.io/kubernetes/cmd/kubectl"},
        values={f"{_VERSION}.gitVersion": _KUBERNETES},
    ),
}
# The tools of a release, in the versions of the workflow.
_ALL |= {
    "actionlint": _Module({"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"}),
    "crane": _Module({"crane": "github.com/google/go-containerregistry/cmd/crane"}),
    "cosign": _Module({"cosign": "github.com/sigstore/cosign/v3/cmd/cosign"}),
    "syft": _Module({"syft": "github.com/anchore/syft/cmd/syft"}),
}
_NODE = ("containerd", "etcd", "kubernetes")


@dataclass(frozen=True, slots=True)
class Peers:
    """Paths of the programs of a Kubernetes node."""

    containerd: Path
    """The shim and ctr are in the same folder."""
    ctr: Path
    etcd: Path
    kubelet: Path
    apiserver: Path
    scheduler: Path
    controllers: Path


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Paths of the programs of Prometheus 3, which supports OTLP; Debian's release does not."""

    server: Path
    promtool: Path


@dataclass(frozen=True, slots=True)
class VictoriaMetrics:
    """Paths of the single-node VictoriaMetrics, and of vmalert, which evaluates its rules."""

    server: Path
    vmalert: Path


@dataclass(frozen=True, slots=True)
class Scrapers:
    """Paths of programs that scrape a page, or take a file of metrics."""

    prometheus: Path
    """Prometheus 3."""
    vmagent: Path
    collector: Path
    """An OpenTelemetry Collector with the Prometheus receiver."""
    node_exporter: Path


def build() -> Peers:
    """Return the programs of a Kubernetes node; a first build takes about seven minutes."""
    _make(*_NODE)
    return Peers(
        containerd=BUILT / "containerd" / "containerd",
        ctr=BUILT / "containerd" / "ctr",
        etcd=BUILT / "etcd" / "etcd",
        kubelet=BUILT / "kubernetes" / "kubelet",
        apiserver=BUILT / "kubernetes" / "kube-apiserver",
        scheduler=BUILT / "kubernetes" / "kube-scheduler",
        controllers=BUILT / "kubernetes" / "kube-controller-manager",
    )


def collector() -> Path:
    """Return the Collector; build it if missing, which takes about two minutes."""
    return _one("collector")


def prometheus() -> Prometheus:
    """Return Prometheus 3; build it if missing, which takes about three minutes."""
    _make("prometheus")
    folder = BUILT / "prometheus"
    return Prometheus(folder / "prometheus", folder / "promtool")


def victoria_metrics() -> VictoriaMetrics:
    """Return VictoriaMetrics; build it if missing, which takes about three minutes."""
    _make("victoriametrics")
    folder = BUILT / "victoriametrics"
    return VictoriaMetrics(folder / "victoria-metrics", folder / "vmalert")


def scrapers() -> Scrapers:
    """Return the programs that scrape; a first build takes about eight minutes."""
    return Scrapers(
        prometheus=prometheus().server,
        vmagent=_one("vmagent"),
        collector=_one("scraping_collector"),
        node_exporter=_one("node_exporter"),
    )


def _one(name: str) -> Path:
    """Build a module with one program of the same name, and return the program."""
    _make(name)
    return BUILT / name / name


def helm() -> Path:
    """Return helm; build it if missing, which takes about two minutes."""
    return _one("helm")


def grafana_schema() -> Path:
    """Return the check of dashboards; build it if missing, which takes one minute."""
    return _one("grafana_schema")


def compose() -> Path:
    """Return the parser of compose files; build it if missing, which takes half a minute."""
    return _one("compose")


def versitygw() -> Path:
    """Return the S3 server; build it if missing, which takes one and a half minutes."""
    return _one("versitygw")


def kubectl() -> Path:
    """Return kubectl; build it if missing, which takes two minutes after Kubernetes."""
    return _one("kubectl")


def actionlint() -> Path:
    """Return actionlint, which checks workflows; build it if missing, which takes half a minute."""
    return _one("actionlint")


def crane() -> Path:
    """Return crane, which has a registry; build it if missing, which takes half a minute."""
    return _one("crane")


def cosign() -> Path:
    """Return cosign, which signs; build it if missing, which takes about five minutes."""
    return _one("cosign")


def syft() -> Path:
    """Return syft, which lists packages; build it if missing, which takes about five minutes."""
    return _one("syft")


def _make(*names: str) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / ".lock").open("w") as lock:
        # Other runs wait for the result of the build.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            _build(name, _ALL[name])


def _build(name: str, module: _Module) -> None:
    folder = BUILT / name
    stamp = folder / "stamp"
    wanted = _hash(name, module)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    if shutil.which("go") is None:
        raise RuntimeError(f"no go: the end-to-end tests build {name} from source")
    with tempfile.TemporaryDirectory(dir=BUILT) as made:
        for program, package in module.programs.items():
            _go(module, _MODULES / name, Path(made) / program, package)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for program in module.programs:
            (Path(made) / program).rename(folder / program)
    stamp.write_text(wanted)  # last, so that an interrupted build has no stamp


def _go(module: _Module, source: Path, target: Path, package: str) -> None:
    values = [f"-X {name}={value}" for name, value in module.values.items()]
    command = [
        *("go", "build", "-buildvcs=false", f"-tags={module.tags}"),
        f"-ldflags={' '.join(['-s', '-w', *values])}",
        *("-o", str(target), package),
    ]
    print(f"building {target.name}", flush=True)
    done = subprocess.run(
        command,
        cwd=source,
        # Static, so that it runs with any C library.
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-3000:]}")


def _hash(name: str, module: _Module) -> str:
    digest = hashlib.sha256(repr(module).encode())
    for file in sorted((_MODULES / name).iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()
