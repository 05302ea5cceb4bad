"""Options of dcgm-exporter result in a podgpu configuration, and errors name the option."""

import logging
import re
from typing import Any

import pytest

from config.errors import ConfigError
from podgpu.cli.dcgm_exporter.command import effective_config
from podgpu.cli.dcgm_exporter.go_arguments import Line, Setting
from podgpu.cli.dcgm_exporter.option_table import OPTIONS, Support
from tests.podgpu.cli.dcgm_configs import config_of, parsed, value_at

SETTINGS: list[tuple[str, dict[str, object]]] = [
    ("", {"sources.gpus.interval": "30s", "sources.gpus.slow_interval": "30s"}),
    ("", {"sources.gpus.devices": "f", "sources.gpus.processes": False}),
    ("", {"sources.kubelet": None, "sources.pods": None, "sinks.metrics.containers": False}),
    ("", {"counters.configmap": None, "sources.engine": None}),
    ("", {"sinks.metrics.listen": ":9400", "node": "${NODE_NAME:-}"}),
    ("", {"http": {"allowed_hosts": ["*"]}}),
    ("-a :1 --web-systemd-socket", {"sinks.metrics.listen": "systemd"}),
    ("-f /x.csv", {"counters.file": "/x.csv"}),
    ("-m ns:name", {"counters.configmap": "ns:name", "counters.file": None}),
    ("-m none -f /x.csv", {"counters.configmap": None, "counters.file": "/x.csv"}),
    ("-c 1500", {"sources.gpus.interval": "1.5s", "sources.gpus.slow_interval": "1.5s"}),
    ("-c 100", {"sources.gpus.interval": "100ms"}),
    ("", {"sinks.metrics.mig_readings": "instances"}),
    ("-d g:0,2-3", {"sources.gpus.devices": "g:0,2-3", "sinks.metrics.mig_readings": "gpu"}),
    ("-d i", {"sources.gpus.devices": "i", "sinks.metrics.mig_readings": "gpu"}),
    ("-d g+i", {"sources.gpus.devices": "g+i", "sinks.metrics.mig_readings": "both"}),
    (
        "-d g:0+i:1-2",
        {"sources.gpus.devices": "g:0+i:1-2", "sinks.metrics.mig_readings": "both"},
    ),
    ("-x 60000", {"sources.gpus.xid_window": "1m"}),
    ("--clock-events-count-window-size 1000", {"sources.gpus.clock_events_window": "1s"}),
    ("-r host:5555", {"sources.engine.address": "host:5555", "sources.engine.interval": "30s"}),
    ("-r host", {"sources.engine.address": "host:5555", "sources.gpus.kind": "nvml"}),
    ("-r localhost:5556", {"sources.engine.address": "localhost:5556", "node": "${NODE_NAME:-}"}),
    ("-r tcp://host:1", {"sources.engine.address": "host:1"}),
    ("-r unix:///run/d.sock", {"sources.engine.address": "unix:///run/d.sock"}),
    ("-k", {"sources.kubelet.kind": "podresources", "sinks.metrics.containers": True}),
    ("-k", {"sources.kubelet.interval": "2s"}),
    ("-k --kubernetes-enable-pod-uid", {"sources.kubelet.interval": None}),
    ("-k", {"sources.pods": None, "sinks.metrics.inline": None, "sources.kubelet.resources": None}),
    ("-k --pod-resources-kubelet-socket /k/s", {"sources.kubelet.sockets": ["/k/s"]}),
    (
        "-k --nvidia-resource-names a.com/x,nvidia.com/*",
        {"sources.kubelet.resources": ["nvidia.com/*", "*/*gpu*", "a.com/x"]},
    ),
    (
        "-k --kubernetes-enable-pod-labels",
        {
            "sources.pods.kind": "pods",
            "sources.pods.labels": ["*"],
            "sources.pods.max_labels": 1000,
            "sources.pods.resource_slices": False,
            "sinks.metrics.inline": ["labels"],
            "sinks.metrics.pod_label_prefix": "",
        },
    ),
    (
        "-k --kubernetes-enable-pod-labels --kubernetes-pod-label-allowlist-regex ^a$,b.*",
        {"sources.pods.label_patterns": ["^a$", "b.*"], "sources.pods.labels": None},
    ),
    (
        "-k --kubernetes-enable-pod-uid",
        {
            "sources.pods.kind": "pods",
            "sources.pods.labels": None,
            "sinks.metrics.inline": ["pod_uid"],
            "sinks.metrics.pod_label_prefix": None,
        },
    ),
    (
        "-k --kubernetes-enable-pod-uid --kubernetes-enable-pod-labels",
        {"sinks.metrics.inline": ["pod_uid", "labels"]},
    ),
    (
        "-k --kubernetes-enable-dra",
        {
            "sources.pods.resource_slices": True,
            "sinks.metrics.inline": ["resource_claims"],
            "sinks.metrics.sharing": "claims",
        },
    ),
    (
        "-k --kubernetes-enable-dra --kubernetes-virtual-gpus",
        {"sinks.metrics.inline": ["resource_claims"], "sinks.metrics.sharing": "copies"},
    ),
    ("--kubernetes-enable-dra", {"sources.pods": None, "sinks.metrics.sharing": None}),
    (
        "-k --kubernetes-virtual-gpus",
        {
            "sinks.metrics.sharing": "copies",
            # Processes are needed, but not as series; and pods, for their UIDs.
            "sources.gpus.processes": None,
            "sources.gpus.process_readings": False,
            "sources.pods.kind": "pods",
            "sources.kubelet.interval": "2s",
            "sinks.metrics.inline": None,
        },
    ),
    (
        "-k --kubernetes-virtual-gpus --kubernetes-enable-pod-uid",
        {"sources.kubelet.interval": None, "sinks.metrics.inline": ["pod_uid"]},
    ),
    (
        "--kubernetes-virtual-gpus",
        {"sinks.metrics.sharing": None, "sources.gpus.processes": False, "sources.pods": None},
    ),
    ("--kubernetes-enable-pod-labels", {"sources.pods": None, "sinks.metrics.inline": None}),
    ("--hpc-job-mapping-dir /x", {"sources.jobs.kind": "jobfiles", "sources.jobs.path": "/x"}),
    ("-k --hpc-job-mapping-dir=", {"sources.jobs": None}),
    ("-a 127.0.0.1:9500", {"sinks.metrics.listen": "127.0.0.1:9500"}),
    ("-a [::]:9400", {"sinks.metrics.listen": "[::]:9400"}),
    ("-o", {"sinks.metrics.labels": "dcgm-old"}),
    ("-n", {"sinks.metrics.hostname": False}),
    ("-rbmn", {"sinks.metrics.replace_model_blanks": True}),
    ("--web-config-file /w.yaml", {"http.web_config": "/w.yaml"}),
    ("--log-format json --debug", {"log.format": "json", "log.level": "debug"}),
    ("--labels dcgm-hostname", {"sinks.metrics.labels": "dcgm-hostname"}),
    ("--labels dcgm-1x -o", {"sinks.metrics.labels": "dcgm-1x"}),
    ("--own=false", {"counters.own": False}),
]


@pytest.mark.parametrize(("words", "expected"), SETTINGS, ids=[words for words, _ in SETTINGS])
def test_options_result_in_these_settings(words: str, expected: dict[str, object]) -> None:
    found = config_of(*words.split(), NODE_NAME="node-7")
    assert {place: value_at(found.text, place) for place in expected} == expected
    assert parsed(found, {"NODE_NAME": "node-7"}) == found.config
    assert found.config.node == "node-7"


def test_every_option_with_an_effect_is_in_that_table() -> None:
    options = " ".join(words for words, _ in SETTINGS).split()
    for option in OPTIONS:
        if option.config_key:
            assert any(word.startswith(flag) for word in options for flag in option.flags), (
                option.name
            )
            places = [place for _, expected in SETTINGS for place in expected]
            assert any(place.startswith(option.config_key) for place in places), option.name


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_setting_from_a_variable_names_the_variable(option: Any) -> None:
    text = {
        "configmap-data": "ns:name",
        "devices": "g",
        "kubernetes-gpu-id-type": "device-name",
        "log-format": "json",
        "dcgm-log-level": "INFO",
        "labels": "dcgm-old",
        "remote-hostengine-info": "host:1",
        "address": ":1",
        "config-file": "",
        "pod-resources-kubelet-socket": "/k/s",
        "collectors": "/x",
        "web-config-file": "/x",
    }.get(option.name)
    text = text if text is not None else {int: "7777", bool: "true"}.get(option.value_type)
    if not option.variable or text == "":
        return
    env = {
        "DCGM_EXPORTER_KUBERNETES": "true",
        "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true",
        option.variable: text or "x",
    }
    found = config_of(**env)
    assert parsed(found, env) == found.config
    if option.config_key:
        key = option.config_key.rpartition(".")[2]
        assert re.search(rf"^ *{key}:.*# .*{option.variable}", found.text, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-c 0", "-c: 0 is not an interval: the unit is milliseconds (ms); write 100 or more"),
        ("-c 99999999999999999", "-c: 99999999999999999 is too long; write milliseconds"),
        ("-a 9400", '-a: "9400" is only a port; write ":9400"'),
        ("-d f+g", "podgpu dcgm-exporter: -d: "),
        ("-d x", "podgpu dcgm-exporter: -d: 'x' does not select devices; write all, f, g, i, "),
        ("-m name", '-m: "name" is not a ConfigMap; write NAMESPACE:NAME'),
        ("-m a:b:c", '-m: "a:b:c" is not a ConfigMap; write NAMESPACE:NAME'),
        ("-r vsock://3:5555", "-r: is not valid"),
        (
            "--kubernetes-gpu-id-type uuid",
            '--kubernetes-gpu-id-type: "uuid" is unknown; write uid or device-name',
        ),
        (
            "-k --kubernetes-enable-pod-labels --kubernetes-pod-label-allowlist-regex app,[a",
            (
                '--kubernetes-pod-label-allowlist-regex: "[a" is not a regular expression: '
                "missing ]: [a; write it in the syntax"
            ),
        ),
        ("--log-format xml", '--log-format: "xml" is unknown; write text or json'),
        ("--dcgm-log-level LOUD", '--dcgm-log-level: "LOUD" is unknown; write NONE, FATAL,'),
        ("--labels dcgm-2x", "--labels: expected one of dcgm, dcgm-hostname, dcgm-old, dcgm-1x"),
        ("--config-file /none.yaml", "/none.yaml: there is no such file; check the path"),
    ],
)
def test_an_invalid_value_is_reported_with_its_option(words: str, error: str) -> None:
    with pytest.raises(ConfigError) as found:
        config_of(*words.split())
    assert error in str(found.value)


def test_an_invalid_variable_is_reported_with_its_name() -> None:
    with pytest.raises(ConfigError) as found:
        config_of(DCGM_EXPORTER_INTERVAL="0")
    assert str(found.value).startswith("podgpu dcgm-exporter: DCGM_EXPORTER_INTERVAL: 0 is not an ")
    with pytest.raises(ConfigError) as found:
        config_of(DCGM_EXPORTER_LISTEN="9400")
    assert str(found.value).startswith(
        'podgpu dcgm-exporter: DCGM_EXPORTER_LISTEN: "9400" is only a'
    )


@pytest.mark.parametrize(
    ("words", "remarks"),
    [
        ("", []),
        ("-s f -p f --dump-enabled=false --enable-dcgm-log=false", []),
        (
            "-s g:1",
            [
                (
                    "-s has no effect: NVML has no data about NVSwitches; NVLinks are reported "
                    "for each GPU."
                )
            ],
        ),
        (
            "--dump-enabled --enable-pprof --fake-gpus",
            [
                (
                    "not needed in podgpu: --fake-gpus, --enable-pprof, --dump-enabled; "
                    "see docs/migrating.md"
                )
            ],
        ),
        (
            "--kubernetes-enable-pod-uid",
            ["--kubernetes-enable-pod-uid has no effect without --kubernetes"],
        ),
        (
            "-k --kubernetes-pod-label-allowlist-regex x",
            [
                (
                    "--kubernetes-pod-label-allowlist-regex has no effect without "
                    "--kubernetes-enable-pod-labels"
                )
            ],
        ),
        ("-o --labels dcgm-1x", ["-o has no effect with --labels"]),
        (
            "-k true -f x",
            [
                (
                    "true is not an option; as in dcgm-exporter, everything from there on is "
                    "ignored: true -f x; write a switch as -k or -k=true"
                )
            ],
        ),
    ],
)
def test_remarks_at_the_start(words: str, remarks: list[str]) -> None:
    found = config_of("-f", "/x.csv", *words.split())
    assert len(found.remarks) == len(remarks)
    for remark, text in zip(found.remarks, remarks, strict=True):
        assert remark[1].startswith(text)
        assert remark[0] == (logging.INFO if text.startswith("not needed") else logging.WARNING)
        assert f"# {remark[1]}\n" in found.text


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_without_effect_is_reported(option: Any) -> None:
    if option.support not in {Support.NOT_NEEDED, Support.NOT_SUPPORTED, Support.RENAMED}:
        return
    value: Any = {str: "/x", int: 7, bool: not option.default}[option.value_type]
    value = {"dcgm-log-level": "INFO", "kubernetes-gpu-id-type": "device-name"}.get(
        option.name, value
    )
    file = {"collectors": Setting("/x.csv", "-f")}
    line = Line(file | {option.name: Setting(value, option.flags[0])})
    assert [option.flags[0] in remark[1] for remark in effective_config(line, {}).remarks] == [True]
