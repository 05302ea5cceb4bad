"""All options: those of dcgm-exporter and a few of podgpu's own."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

Value: TypeAlias = str | int | bool | tuple[str, ...]
"""Value of an option: a text, a number, a switch or a list of texts."""


class Support(StrEnum):
    """How podgpu treats an option of dcgm-exporter."""

    SAME = "same"
    RENAMED = "renamed"
    """podgpu has the same function under another name or in another form."""
    NOT_NEEDED = "not needed"
    NOT_SUPPORTED = "not supported"
    OWN = "podgpu's own"


TYPES: Final = {str: "text", int: "number", bool: "switch", tuple: "list"}
"""Names of the types of values in the help text."""

_VARIABLES: Final = {
    "collect-interval": "DCGM_EXPORTER_INTERVAL",
    "devices": "DCGM_EXPORTER_DEVICES_STR",
    "switch-devices": "DCGM_EXPORTER_OTHER_DEVICES_STR",
    "cpu-devices": "DCGM_EXPORTER_CPU_DEVICES_STR",
    "remote-hostengine-info": "DCGM_REMOTE_HOSTENGINE_INFO",
    "fake-gpus": "DCGM_EXPORTER_USE_FAKE_GPUS",
    "kubernetes-virtual-gpus": "KUBERNETES_VIRTUAL_GPUS",
    "kubernetes-enable-dra": "KUBERNETES_ENABLE_DRA",
    "nvidia-resource-names": "NVIDIA_RESOURCE_NAMES",
    "pod-resources-kubelet-socket": "DCGM_POD_RESOURCES_KUBELET_SOCKET",
    "hpc-job-mapping-dir": "DCGM_HPC_JOB_MAPPING_DIR",
    "container-runtime-socket": "DCGM_CONTAINER_RUNTIME_SOCKET",
    "address": "DCGM_EXPORTER_LISTEN",
    "web-systemd-socket": "DCGM_EXPORTER_SYSTEMD_SOCKET",
    "disable-startup-validate": "DISABLE_STARTUP_VALIDATE",
    "labels": "PODGPU_LABELS",
    "own": "PODGPU_OWN",
    "print-config": "",
}
"""Environment variables whose names do not follow from the option's name; empty for none."""


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option.

    Attributes:
        name: long name without dashes.
        default: value if the option is not given; its type is the type of the option.
        why: sentences about the option for users.
        config_key: the key of podgpu's configuration file that the option sets; empty for none.
        short: short name without dash; empty for none.
        support: how podgpu treats the option.
    """

    name: str
    default: Value
    why: str
    config_key: str = ""
    short: str = ""
    support: Support = Support.SAME

    @property
    def value_type(self) -> type:
        """Type of the option's value, a key of `TYPES`."""
        return type(self.default)

    @property
    def variable(self) -> str:
        """The environment variable that sets the option; empty for none."""
        derived = f"DCGM_EXPORTER_{self.name.upper().replace('-', '_')}"
        return _VARIABLES.get(self.name, derived)

    @property
    def flags(self) -> tuple[str, ...]:
        """All names with their dashes, the long one first."""
        return (f"--{self.name}", f"-{self.short}") if self.short else (f"--{self.name}",)

    @property
    def written_default(self) -> str:
        """The default as it is written on a command line."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)


_not_needed: Final = partial(Option, support=Support.NOT_NEEDED)
_not_supported: Final = partial(Option, support=Support.NOT_SUPPORTED)
_renamed: Final = partial(Option, support=Support.RENAMED)
_own: Final = partial(Option, support=Support.OWN)

_NO_DCGM: Final = "podgpu does not run DCGM; --debug and --log-format configure podgpu's own log."
_NO_DUMPS: Final = "`podgpu record` writes the events of the sources to a file, for replay."
_NO_CACHE: Final = "podgpu has no DCGM cache that could grow."
_EACH_ROUND: Final = "podgpu detects added and removed GPUs in each round of readings."
_WINDOW: Final = "Milliseconds; at least a second and at most a day, else with a warning."
_NO_RUNTIME: Final = "podgpu does not read labels of containers outside of Kubernetes."
_FROM_MEMORY: Final = (
    "Responses are served from memory; slow and idle clients give way to new ones."
)

OWN: Final = (
    _own(
        "labels",
        "dcgm",
        "The format of the labels: dcgm, dcgm-hostname, dcgm-old or dcgm-1x. It overrides -o.",
        "sinks.metrics.labels",
    ),
    _own(
        "own",
        True,
        "Whether podgpu's own fields are exported in addition to those of the counters file.",
        "counters.own",
    ),
    _own("print-config", False, "Prints the resulting configuration, for `podgpu run -c FILE`."),
)

OPTIONS: Final = (
    # The fields and the devices that are read.
    Option(
        "collectors",
        "/etc/dcgm-exporter/default-counters.csv",
        "The file is used unchanged. A row that podgpu cannot export is logged and skipped; all "
        "others are exported. Without the option, and where there is no such file, podgpu uses its "
        "own copy of it.",
        "counters.file",
        "f",
    ),
    Option(
        "configmap-data",
        "none",
        "NAMESPACE:NAME of a ConfigMap with the counters file in its key `metrics`. podgpu "
        "watches it for changes, and does not read -f.",
        "counters.configmap",
        "m",
    ),
    Option(
        "collect-interval",
        30000,
        "Milliseconds; sets both intervals of podgpu, the normal and the slow one. Below 100, "
        "podgpu uses 100 and logs a warning; 0 is an error, as in DCGM.",
        "sources.gpus.interval",
        "c",
    ),
    Option(
        "devices",
        "f",
        "f, or g and i with or without indices; g+i selects all devices. With f and g+i, readings "
        "of the whole GPU are repeated for each of its MIG instances.",
        "sources.gpus.devices",
        "d",
    ),
    _not_supported(
        "switch-devices",
        "f",
        "NVML has no data about NVSwitches; NVLinks are reported for each GPU.",
        short="s",
    ),
    _not_supported("cpu-devices", "f", "NVML has no data about Grace processors.", short="p"),
    Option("xid-count-window-size", 300000, _WINDOW, "sources.gpus.xid_window", "x"),
    Option(
        "clock-events-count-window-size",
        300000,
        _WINDOW,
        "sources.gpus.clock_events_window",
    ),
    Option(
        "remote-hostengine-info",
        "localhost:5555",
        "Only if given: reads the fields that NVML cannot read on these GPUs from a running "
        "DCGM. All other fields are read from NVML.",
        "sources.engine.address",
        "r",
    ),
    _renamed(
        "fake-gpus",
        False,
        "podgpu never mixes simulated readings with real ones. `podgpu demo` replays a "
        "recording, without a GPU.",
    ),
    _not_needed("watch-max-keep-age", "10m0s", _NO_CACHE),
    _not_needed("watch-max-keep-samples", 0, _NO_CACHE),
    _not_needed("enable-gpu-bind-unbind-watch", False, _EACH_ROUND),
    _not_needed("gpu-bind-unbind-poll-interval", "1s", _EACH_ROUND),
    # The pods and containers that hold devices.
    Option(
        "kubernetes",
        False,
        "Adds pods and containers, from the kubelet; without it readings have no such labels.",
        "sources.kubelet",
        "k",
    ),
    Option(
        "kubernetes-enable-pod-labels",
        False,
        "With -k; adds the labels of pods to readings, without a prefix.",
        "sources.pods.labels",
    ),
    Option(
        "kubernetes-pod-label-allowlist-regex",
        (),
        "An invalid regular expression is an error at the start. dcgm-exporter ignores it, and "
        "adds all labels if no other is given.",
        "sources.pods.label_patterns",
    ),
    Option(
        "kubernetes-enable-pod-uid",
        False,
        "With -k; adds the label `pod_uid` to readings.",
        "sinks.metrics.inline",
    ),
    _not_needed(
        "kubernetes-gpu-id-type",
        "uid",
        "podgpu recognizes all forms of device ids, also GKE's `nvidia0`. A value other than "
        "uid and device-name is an error.",
    ),
    Option(
        "kubernetes-virtual-gpus",
        False,
        "With -k; utilisation and used memory of each pod, from its own processes (needs "
        "hostPID: true, and rights to list pods), and a copy of all other readings for each "
        "holder. Without it, a shared GPU counts once: `podgpu_device_holder_info` lists its "
        "holders.",
        "sinks.metrics.sharing",
    ),
    Option(
        "kubernetes-enable-dra",
        False,
        "With -k; finds the pods of devices in resource claims, and adds the labels `dra_*`.",
        "sources.pods.resource_slices",
    ),
    Option(
        "nvidia-resource-names",
        (),
        "Rarely needed: podgpu always includes nvidia.com/ and all names that contain gpu.",
        "sources.kubelet.resources",
    ),
    Option(
        "pod-resources-kubelet-socket",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "Mount the folder of the socket.",
        "sources.kubelet.sockets",
    ),
    Option(
        "hpc-job-mapping-dir",
        "",
        "The folder in which a batch system lists the jobs of each GPU. Readings have one series "
        "for each job, with the label `hpc_job`. podgpu's own fields have the label only if the "
        "GPU has one job.",
        "sources.jobs.path",
    ),
    _not_supported("container-labels", False, _NO_RUNTIME),
    _not_supported("container-runtime-socket", "", _NO_RUNTIME),
    # The HTTP server, the format of the metrics, and the log.
    Option("address", ":9400", "HOST:PORT.", "sinks.metrics.listen", "a"),
    Option(
        "use-old-namespace",
        False,
        "The labels of dcgm-exporter 1.x with current metric names: `labels: dcgm-old`.",
        "sinks.metrics.labels",
        "o",
    ),
    Option(
        "no-hostname", False, "Omits the label with the node's name.", "sinks.metrics.hostname", "n"
    ),
    Option(
        "replace-blanks-in-model-name",
        False,
        "Replaces blanks in `modelName` with dashes.",
        "sinks.metrics.replace_model_blanks",
        "rbmn",
    ),
    Option(
        "web-config-file",
        "",
        "TLS, client certificates and passwords, in the same format.",
        "http.web_config",
    ),
    Option(
        "config-file",
        "",
        "dcgm-exporter's YAML, versions 1 and 2. podgpu uses the counters file or the fields in "
        "it, and reads all fields at the shortest interval in it.",
    ),
    _not_needed("web-read-timeout", "10s", _FROM_MEMORY),
    _not_needed("web-write-timeout", "30s", _FROM_MEMORY),
    _not_needed("max-concurrent-scrapes", 16, "A scrape reads no GPU and takes a millisecond."),
    Option(
        "web-systemd-socket",
        False,
        "The socket of a systemd socket unit; -a has no effect then.",
        "sinks.metrics.listen",
    ),
    _renamed(
        "enable-exporter-metrics",
        False,
        "podgpu always exports metrics about itself, as `podgpu_*`.",
    ),
    _not_needed(
        "health-require-gpus",
        False,
        "podgpu finds a driver that is loaded later without a restart; see `podgpu_source_up`.",
    ),
    Option("log-format", "text", "text or json.", "log.format"),
    Option("debug", False, "`log.level: debug`.", "log.level"),
    # Debugging and DCGM. None of these has an effect in podgpu.
    _not_needed("enable-dcgm-log", False, _NO_DCGM),
    _not_needed("dcgm-log-level", "NONE", _NO_DCGM),
    _not_needed(
        "disable-startup-validate", False, "podgpu starts without a driver and waits for it."
    ),
    _not_needed("enable-pprof", False, "podgpu is not a Go program."),
    _not_needed("dump-enabled", False, _NO_DUMPS),
    _not_needed("dump-directory", "/tmp/dcgm-exporter-debug", _NO_DUMPS),  # noqa: S108 - dcgm-exporter's default, not used here
    _not_needed("dump-retention", 24, _NO_DUMPS),
    _not_needed("dump-compression", True, _NO_DUMPS),
    *OWN,
)

BY_NAME: Final = {
    name: option for option in OPTIONS for name in (option.name, option.short) if name
}
"""Each option by its long name and by its short name."""
