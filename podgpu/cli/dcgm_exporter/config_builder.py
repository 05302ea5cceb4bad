"""Convert dcgm-exporter's options to a podgpu configuration."""

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from config.value_types import Duration
from pipeline.component.registry import RegisteredKinds
from pipeline.http.allowed_hosts import ANY_HOST
from podgpu.cli.dcgm_exporter.settings import Settings
from podgpu.cli.dcgm_exporter.yaml_writer import ConfigDraft, Verbatim

_MIN_INTERVAL: Final = 100  # milliseconds, the minimum of the nvml source
_WINDOWS: Final = {
    "xid-count-window-size": "sources.gpus.xid_window",
    "clock-events-count-window-size": "sources.gpus.clock_events_window",
}
_ENGINE_PORT: Final = ":5555"
_MAX_LABELS: Final = 1000
"""Maximum number of labels of one pod: all, in practice. The pods source allows no more."""


def build(settings: Settings) -> ConfigDraft:
    """Return the configuration.

    Raises:
        ConfigError: a value is invalid.
    """
    config = ConfigDraft()
    # A placeholder, so that the printed configuration can be used on every node.
    config.put("node", Verbatim("${NODE_NAME:-}"), "NODE_NAME")
    _gpus(config, settings)
    _engine(config, settings)
    _holders(config, settings)
    _page(config, settings)
    _counters(config, settings)
    if path := settings.text("web-config-file"):
        config.put("http.web_config", path, settings.origin("web-config-file"))
    # dcgm-exporter accepts any Host header.
    config.put("http.allowed_hosts", (ANY_HOST,))
    if settings.switch("web-systemd-socket"):
        raise settings.refused(
            "web-systemd-socket",
            "podgpu does not support socket activation",
            "remove it, and give the address with -a",
        )
    _log(config, settings)
    return config


def _gpus(config: ConfigDraft, settings: Settings) -> None:
    config.put("sources.gpus.kind", "nvml")
    interval = settings.number("collect-interval")
    if interval < _MIN_INTERVAL:
        seconds = f"; for {interval} seconds write {interval * 1000}" if interval > 0 else ""
        raise settings.refused(
            "collect-interval",
            f"{interval} is too short: the unit is milliseconds (ms)",
            f"the minimum is {_MIN_INTERVAL}{seconds}",
        )
    for key in ("interval", "slow_interval"):
        text, origin = _duration(settings, "collect-interval"), settings.origin("collect-interval")
        config.put(f"sources.gpus.{key}", text, origin)
    config.put("sources.gpus.devices", settings.text("devices"), settings.origin("devices"))
    # dcgm-exporter has no readings per process, and each would be an additional series.
    config.put("sources.gpus.processes", False)
    for name, place in _WINDOWS.items():
        if settings.number(name) <= 0:
            number = settings.number(name)
            raise settings.refused(name, f"{number} is too short", "write milliseconds, 1 or more")
        config.put(place, _duration(settings, name), settings.origin(name))


def _duration(settings: Settings, name: str) -> str:
    try:
        return str(Duration(settings.number(name) / 1000))
    except ValueError:
        number = settings.number(name)
        raise settings.refused(name, f"{number} is too long", "write milliseconds") from None


def _engine(config: ConfigDraft, settings: Settings) -> None:
    if not settings.given("remote-hostengine-info"):
        return
    address = settings.text("remote-hostengine-info").removeprefix("tcp://")
    if not set(":/") & set(address):
        address += _ENGINE_PORT
    config.add_component("sources.engine", "hostengine", settings.origin("remote-hostengine-info"))
    config.put("sources.engine.address", address, settings.origin("remote-hostengine-info"))
    interval, origin = _duration(settings, "collect-interval"), settings.origin("collect-interval")
    config.put("sources.engine.interval", interval, origin)


_KUBELET_INTERVAL: Final = "2s"
"""Interval at which the kubelet is queried if no other source reports pods."""


def _holders(config: ConfigDraft, settings: Settings) -> None:
    if (kind := settings.text("kubernetes-gpu-id-type")) not in {"uid", "device-name"}:
        raise settings.refused(
            "kubernetes-gpu-id-type", f'"{kind}" is unknown', "write uid or device-name"
        )
    if not settings.switch("kubernetes"):
        return
    config.add_component("sources.kubelet", "podresources", settings.origin("kubernetes"))
    socket = settings.text("pod-resources-kubelet-socket")
    origin = settings.origin("pod-resources-kubelet-socket")
    config.put("sources.kubelet.sockets", (socket,), origin)
    if names := settings.list("nvidia-resource-names"):
        known = _default("podresources", "resources")
        origin = settings.origin("nvidia-resource-names")
        config.put("sources.kubelet.resources", tuple(dict.fromkeys([*known, *names])), origin)
    reasons = [name for name in _NEED_PODS_SOURCE if settings.switch(name)]
    if not reasons:
        # No other source reports new or deleted pods; dcgm-exporter queries at each scrape.
        config.put("sources.kubelet.interval", _KUBELET_INTERVAL, settings.origin("kubernetes"))
    else:
        config.add_component("sources.pods", "pods", ", ".join(map(settings.origin, reasons)))
        slices = settings.switch("kubernetes-enable-dra")
        origin = settings.origin("kubernetes-enable-dra")
        config.put("sources.pods.resource_slices", slices, origin)
        config.put("sources.pods.resource_claims", slices, origin)
    if settings.switch("kubernetes-enable-pod-labels"):
        _pod_labels(config, settings)


_NEED_PODS_SOURCE: Final = (
    "kubernetes-enable-pod-labels",
    "kubernetes-enable-pod-uid",
    "kubernetes-enable-dra",
)


def _pod_labels(config: ConfigDraft, settings: Settings) -> None:
    if patterns := settings.list("kubernetes-pod-label-allowlist-regex"):
        origin = settings.origin("kubernetes-pod-label-allowlist-regex")
        config.put("sources.pods.label_patterns", patterns, origin)
    else:
        origin = settings.origin("kubernetes-enable-pod-labels")
        config.put("sources.pods.labels", ("*",), origin)
    config.put("sources.pods.max_labels", _MAX_LABELS)


def _default(kind: str, option: str) -> tuple[str, ...]:
    fields = msgspec.structs.fields(RegisteredKinds().options("source", kind))
    return cast("tuple[str, ...]", next(each.default for each in fields if each.name == option))


def _page(config: ConfigDraft, settings: Settings) -> None:
    config.put("sinks.metrics.kind", "prometheus")
    config.put("sinks.metrics.listen", settings.text("address"), settings.origin("address"))
    if settings.given("labels"):
        config.put("sinks.metrics.labels", settings.text("labels"), settings.origin("labels"))
    elif settings.switch("use-old-namespace"):
        config.put("sinks.metrics.labels", "dcgm-old", settings.origin("use-old-namespace"))
    if settings.switch("no-hostname"):
        config.put("sinks.metrics.hostname", False, settings.origin("no-hostname"))
    if settings.switch("replace-blanks-in-model-name"):
        origin = settings.origin("replace-blanks-in-model-name")
        config.put("sinks.metrics.replace_model_blanks", True, origin)
    held = settings.switch("kubernetes")
    config.put("sinks.metrics.containers", held, settings.origin("kubernetes"))
    if not held:
        return
    if inline := dict(_inline(settings)):
        origin = ", ".join(map(settings.origin, inline.values()))
        config.put("sinks.metrics.inline", tuple(inline), origin)
    if "labels" in inline:
        config.put("sinks.metrics.pod_label_prefix", "", settings.origin(inline["labels"]))
    if settings.switch("kubernetes-virtual-gpus"):
        origin = settings.origin("kubernetes-virtual-gpus")
        config.put("sinks.metrics.sharing", "copies", origin)


def _inline(settings: Settings) -> Iterator[tuple[str, str]]:
    options = {"pod_uid": "kubernetes-enable-pod-uid", "labels": "kubernetes-enable-pod-labels"}
    return ((word, name) for word, name in options.items() if settings.switch(name))


def _counters(config: ConfigDraft, settings: Settings) -> None:
    configmap = settings.text("configmap-data")
    if configmap in {"", "none"}:
        config.put("counters.file", settings.text("collectors"), settings.origin("collectors"))
    elif len(parts := configmap.split(":")) == 2 and all(parts):
        config.put("counters.configmap", configmap, settings.origin("configmap-data"))
    else:
        raise settings.refused(
            "configmap-data", f'"{configmap}" is not a ConfigMap', "write NAMESPACE:NAME"
        )
    if settings.given("own"):
        config.put("counters.own", settings.switch("own"), settings.origin("own"))


def _log(config: ConfigDraft, settings: Settings) -> None:
    if (form := settings.text("log-format")) not in {"text", "json"}:
        raise settings.refused("log-format", f'"{form}" is unknown', "write text or json")
    levels = ("NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB")
    if (level := settings.text("dcgm-log-level")) not in levels:
        hint = f"the levels are {', '.join(levels)}"
        raise settings.refused("dcgm-log-level", f'"{level}" is unknown', hint)
    config.put("log.format", form, settings.origin("log-format"))
    if settings.switch("debug"):
        config.put("log.level", "debug", settings.origin("debug"))
