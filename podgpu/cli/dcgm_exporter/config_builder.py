"""Convert dcgm-exporter's options to a podgpu configuration, and write it as YAML.

Reading the YAML gives the same values.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Final, TypeAlias

import msgspec

from config.shipped_lists import SHIPPED_LISTS
from config.value_types import Duration
from pipeline.component.registry import RegisteredKinds
from pipeline.http.allowed_hosts import ANY_HOST
from podgpu.cli.dcgm_exporter.go_arguments import Settings

_WINDOWS: Final = {
    "xid-count-window-size": "sources.gpus.xid_window",
    "clock-events-count-window-size": "sources.gpus.clock_events_window",
}
_ENGINE_PORT: Final = ":5555"
_MAX_LABELS: Final = 1000
"""Maximum number of labels of one pod, enough for all labels; the maximum of the source `pods`."""

_KUBELET_INTERVAL: Final = "2s"
"""Interval at which the kubelet is queried if no other source reports pods."""

_NEED_PODS_SOURCE: Final = (
    "kubernetes-enable-pod-labels",
    "kubernetes-enable-pod-uid",
    "kubernetes-enable-dra",
    "kubernetes-virtual-gpus",
)
_INLINE: Final = {
    "pod_uid": "kubernetes-enable-pod-uid",
    "labels": "kubernetes-enable-pod-labels",
    "resource_claims": "kubernetes-enable-dra",
}
_CHOICES: Final = {
    "kubernetes-gpu-id-type": ("uid", "device-name"),
    "log-format": ("text", "json"),
    "dcgm-log-level": ("NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB"),
}
"""Valid values of the options that accept only some words."""

Path: TypeAlias = tuple[str, ...]

# Words, durations and paths that every YAML parser reads as text. All others are quoted.
_PLAIN: Final = re.compile(
    r"[a-z]+(?:[-_][a-z0-9]+)*|(?:[0-9]+(?:d|h|ms|m|s))+|(?:/[A-Za-z0-9_.-]+)+"
)
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class Verbatim(str):
    """A text in which `${NAME}` is a placeholder. In all other texts, `${` is escaped."""

    __slots__ = ()


Leaf: TypeAlias = str | bool | int | Sequence[str]
Tree: TypeAlias = "dict[str, Leaf | Tree]"


@dataclass(slots=True)
class ConfigDraft:
    """A configuration under construction.

    Attributes:
        tree: the content of the file.
        origins: the option, variable or file that set a value, by the path of the value.
        notes: messages for the log about what podgpu chose itself.
    """

    tree: Tree = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def put(self, place: str, value: Leaf, origin: str = "") -> None:
        """Set the value at a path such as `sources.gpus.interval`."""
        *outer, key = place.split(".")
        table = self.tree
        for step in outer:
            inner = table.setdefault(step, {})
            assert isinstance(inner, dict)  # noqa: S101 - all paths are constants of podgpu
            table = inner
        table[key] = value
        if origin:
            self.origins[place] = origin

    def add_component(self, place: str, kind: str, origin: str) -> None:
        """Add a source or a sink at a path such as `sources.pods`."""
        self.put(f"{place}.kind", kind)
        self.origins[place] = origin

    def origin(self, place: str) -> str:
        """Return what set the value at a path, or at its nearest parent; empty if unknown."""
        paths = (p for p in self.origins if place == p or place.startswith((f"{p}.", f"{p}[")))
        return self.origins.get(max(paths, key=len, default=""), "")


class ConfigBuilder:
    """Builds a podgpu configuration from the settings of dcgm-exporter."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._draft = ConfigDraft()

    def build(self) -> ConfigDraft:
        """Return the configuration.

        Raises:
            ConfigError: an option has a value that is invalid or not supported.
        """
        # A placeholder, so that the printed configuration can be used on every node.
        self._draft.put("node", Verbatim("${NODE_NAME:-}"), "NODE_NAME")
        self._gpus()
        self._engine()
        self._choice("kubernetes-gpu-id-type")
        if self._settings.switch("kubernetes"):
            self._holders()
        self._jobs()
        self._page()
        self._counters()
        if self._settings.text("web-config-file"):
            self._put("http.web_config", "web-config-file")
        # dcgm-exporter accepts any Host header.
        self._draft.put("http.allowed_hosts", (ANY_HOST,))
        self._choice("log-format")
        self._choice("dcgm-log-level")
        self._put("log.format", "log-format")
        if self._settings.switch("debug"):
            self._put("log.level", "debug", "debug")
        return self._draft

    def _put(self, place: str, name: str, value: Leaf | None = None) -> None:
        """Set the value at a path, by default to an option's value, with the option as origin."""
        value = self._settings.value(name) if value is None else value
        self._draft.put(place, value, self._settings.origin(name))

    def _choice(self, name: str) -> None:
        *others, last = _CHOICES[name]
        if (word := self._settings.text(name)) not in (*others, last):
            hint = f"write {', '.join(others)} or {last}"
            raise self._settings.refused(name, f'"{word}" is unknown', hint)

    def _gpus(self) -> None:
        self._draft.put("sources.gpus.kind", "nvml")
        for key in ("interval", "slow_interval"):
            self._put_duration(f"sources.gpus.{key}", "collect-interval")
        self._put("sources.gpus.devices", "devices")
        # dcgm-exporter has no readings per process, and each would be an additional series.
        if self._virtual_gpus:
            self._put("sources.gpus.process_readings", "kubernetes-virtual-gpus", False)
        else:
            self._draft.put("sources.gpus.processes", False)
        for name, place in _WINDOWS.items():
            self._put_duration(place, name)

    def _put_duration(self, place: str, name: str) -> None:
        number = self._settings.number(name)
        try:
            self._put(place, name, str(Duration(number / 1000)))
        except ValueError:
            text = f"{number} is too long"
            raise self._settings.refused(name, text, "write milliseconds") from None

    @property
    def _virtual_gpus(self) -> bool:
        switch = self._settings.switch
        return switch("kubernetes") and switch("kubernetes-virtual-gpus")

    def _engine(self) -> None:
        name = "remote-hostengine-info"
        if not self._settings.given(name):
            return
        address = self._settings.text(name).removeprefix("tcp://")
        if not set(":/") & set(address):
            address += _ENGINE_PORT
        self._draft.add_component("sources.engine", "hostengine", self._settings.origin(name))
        self._put("sources.engine.address", name, address)
        self._put_duration("sources.engine.interval", "collect-interval")

    def _holders(self) -> None:
        settings, draft = self._settings, self._draft
        draft.add_component("sources.kubelet", "podresources", settings.origin("kubernetes"))
        socket = "pod-resources-kubelet-socket"
        self._put("sources.kubelet.sockets", socket, (settings.text(socket),))
        if names := settings.list("nvidia-resource-names"):
            fields = msgspec.structs.fields(RegisteredKinds().options("source", "podresources"))
            known = next(each.default for each in fields if each.name == "resources")
            every = tuple(dict.fromkeys([*known, *names]))
            self._put("sources.kubelet.resources", "nvidia-resource-names", every)
        if reasons := [name for name in _NEED_PODS_SOURCE if settings.switch(name)]:
            draft.add_component("sources.pods", "pods", ", ".join(map(settings.origin, reasons)))
            self._put("sources.pods.resource_slices", "kubernetes-enable-dra")
            self._put("sources.pods.resource_claims", "kubernetes-enable-dra")
        if {*reasons} <= {"kubernetes-virtual-gpus"}:
            # Perhaps no other source reports new or deleted pods: with dcgm-exporter's role, podgpu
            # may not be allowed to read pods. dcgm-exporter queries the kubelet at each scrape.
            self._put("sources.kubelet.interval", "kubernetes", _KUBELET_INTERVAL)
        if settings.switch("kubernetes-enable-pod-labels"):
            if settings.list("kubernetes-pod-label-allowlist-regex"):
                self._put("sources.pods.label_patterns", "kubernetes-pod-label-allowlist-regex")
            else:
                self._put("sources.pods.labels", "kubernetes-enable-pod-labels", ("*",))
            draft.put("sources.pods.max_labels", _MAX_LABELS)

    def _jobs(self) -> None:
        name = "hpc-job-mapping-dir"
        if self._settings.text(name):
            self._draft.add_component("sources.jobs", "jobfiles", self._settings.origin(name))
            self._put("sources.jobs.path", name)

    def _page(self) -> None:
        settings = self._settings
        self._draft.put("sinks.metrics.kind", "prometheus")
        if settings.switch("web-systemd-socket"):
            self._put("sinks.metrics.listen", "web-systemd-socket", "systemd")
        else:
            self._put("sinks.metrics.listen", "address")
        if settings.given("labels"):
            self._put("sinks.metrics.labels", "labels")
        elif settings.switch("use-old-namespace"):
            self._put("sinks.metrics.labels", "use-old-namespace", "dcgm-old")
        if settings.switch("no-hostname"):
            self._put("sinks.metrics.hostname", "no-hostname", False)
        if settings.switch("replace-blanks-in-model-name"):
            self._put("sinks.metrics.replace_model_blanks", "replace-blanks-in-model-name")
        self._put("sinks.metrics.containers", "kubernetes")
        self._mig_readings()
        if not settings.switch("kubernetes"):
            return
        inline = {word: name for word, name in _INLINE.items() if settings.switch(name)}
        if inline:
            origin = ", ".join(map(settings.origin, inline.values()))
            self._draft.put("sinks.metrics.inline", tuple(inline), origin)
        if "labels" in inline:
            self._put("sinks.metrics.pod_label_prefix", inline["labels"], "")
        if settings.switch("kubernetes-virtual-gpus"):
            self._put("sinks.metrics.sharing", "kubernetes-virtual-gpus", "copies")
        elif settings.switch("kubernetes-enable-dra"):
            # dcgm-exporter shows a copy for each container with a ResourceClaim on the device.
            self._put("sinks.metrics.sharing", "kubernetes-enable-dra", "claims")

    def _mig_readings(self) -> None:
        """Repeat readings of a GPU for its MIG instances, if instances are selected too."""
        selected = {part[:1] for part in self._settings.text("devices").split("+")}
        if selected == {"f"}:
            self._put("sinks.metrics.mig_readings", "devices", "instances")
        elif selected == {"g", "i"}:
            self._put("sinks.metrics.mig_readings", "devices", "both")
        else:
            self._put("sinks.metrics.mig_readings", "devices", "gpu")

    def _counters(self) -> None:
        configmap = self._settings.text("configmap-data")
        if configmap in {"", "none"}:
            inline = isinstance(self._settings.value("collectors"), tuple)
            if inline:
                self._put("counters.rows", "collectors")
            else:
                self._list_file()
        elif len(parts := configmap.split(":")) == 2 and all(parts):
            self._put("counters.configmap", "configmap-data")
        else:
            raise self._settings.refused(
                "configmap-data", f'"{configmap}" is not a ConfigMap', "write NAMESPACE:NAME"
            )
        if self._settings.given("own"):
            self._put("counters.own", "own")

    def _list_file(self) -> None:
        """Set the path of the counters list.

        podgpu's image has a list at dcgm-exporter's default path, which users may replace. Outside
        of the image, the default is the list in podgpu's package.
        """
        path = FilePath(self._settings.text("collectors"))
        if self._settings.given("collectors") or path.exists():
            self._put("counters.file", "collectors")
            return
        shipped = SHIPPED_LISTS / path.name
        self._draft.put("counters.file", str(shipped), "podgpu's own copy")
        self._draft.notes.append(
            f"{path} does not exist, so the counters list is podgpu's own copy: {shipped}"
        )


def yaml_text(draft: ConfigDraft, head: Sequence[str] = ()) -> str:
    """Return a configuration as YAML text, with comments that say what set a value.

    Args:
        draft: the configuration.
        head: lines of the comment at the top.
    """
    lines = [f"# {_on_one_line(line)}" for line in head]
    _add(draft.tree, (), draft.origins, lines)
    return "\n".join(lines) + "\n"


def _add(tree: "Tree", path: Path, origins: Mapping[str, str], lines: list[str]) -> None:
    for key, value in tree.items():
        here = (*path, key)
        origin = origins.get(".".join(here), "")
        comment = f"  # {_on_one_line(origin)}" if origin else ""
        indent = "  " * len(path)
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:{comment}")
            _add(value, here, origins, lines)
        else:
            lines.append(f"{indent}{key}: {_leaf(value)}{comment}")


def _leaf(value: Leaf) -> str:
    if isinstance(value, int):  # a number or a switch
        return str(value).lower()
    if isinstance(value, str):
        return _scalar(value)
    return f"[{', '.join(map(_scalar, value))}]"


def _scalar(value: str) -> str:
    escaped = value if isinstance(value, Verbatim) else value.replace("${", "$${")
    if _PLAIN.fullmatch(escaped) and escaped not in _WORDS:
        return escaped
    quoted = json.dumps(escaped, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _on_one_line(text_: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text_)
