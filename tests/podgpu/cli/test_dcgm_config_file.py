"""dcgm-exporter's YAML file, versions 1 and 2: fields, intervals, precedence, errors."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from pipeline.counters.list_source import text_of_rows
from pipeline.counters.plan_builder import planned
from podgpu.cli.dcgm_exporter.command import EffectiveConfig
from tests.podgpu.cli.dcgm_configs import config_of, parsed, value_at

V1 = """\
version: 1
metrics: {file: /x.csv, enableExporterMetrics: true}
collection:
  interval: 1m30s
  retention: {maxAge: 10m, maxSamples: 0}
  watchGroups: [{name: a, interval: 5s, fields: [DCGM_FI_DEV_GPU_TEMP]}]
server: {maxConcurrentScrapes: 4}
"""
V2 = """\
version: 2
metrics: {file: /x.csv}
sources: {dcgm: {watch: {maxKeepAge: 10m, maxKeepSamples: 0}, detectBindUnbind: {enabled: true}}}
collections:
  - {name: fast, every: 5s, metrics: {include: [DCGM_FI_DEV_GPU_TEMP]}}
  - name: scrape
    every: 1m30s
    metrics: {include: ["*"]}
    sources: {dcgm: {watch: {maxKeepAge: 0s}}}
"""
INLINE = """\
version: 2
metrics:
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: GPU temperature.}
    - {name: " DCGM_FI_DEV_FB_USED ", prometheusType: gauge, help: 'Memory, in "MiB".'}
    - name: DCGM_FI_DRIVER_VERSION
      prometheusType: label
      help: |
        Driver
        version
"""
GROUPS_1 = "version: 1\ncollection: {{{}watchGroups: [{{name: a, interval: {}, fields: [X]}}]}}"
GROUPS_2 = "version: 2\ncollections: [{}{{name: a, every: {}, metrics: {{include: [X]}}}}]"
ALL_1, ALL_2 = "interval: 20s, ", '{name: b, every: 20s, metrics: {include: ["*"]}}, '


def written(tmp_path: Path, text: str, *words: str, **env: str) -> EffectiveConfig:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    found = config_of("--config-file", str(path), *words, **env)
    assert parsed(found, env) == found.config
    return found


@pytest.mark.parametrize(("text", "group"), [(V1, "collection.watchG"), (V2, "collections[0]")])
def test_both_versions_of_the_file_are_read(tmp_path: Path, text: str, group: str) -> None:
    found = written(tmp_path, text, "-a", ":1")
    assert value_at(found.text, "counters.file") == "/x.csv"
    assert value_at(found.text, "sources.gpus.interval") == "5s"
    assert [text for _, text in found.remarks if group in text] == []


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        (GROUPS_1.format(ALL_1, "5s"), "5s"),
        (GROUPS_2.format(ALL_2, "5s"), "5s"),
        (GROUPS_1.format(ALL_1, "10m"), "20s"),
        (GROUPS_2.format(ALL_2, "10m"), "20s"),
        (GROUPS_1.format("", "10m"), "30s"),
        (GROUPS_2.format("", "10m"), "30s"),
        (GROUPS_1.format("", "5s"), "5s"),
        (GROUPS_2.format("", "5s"), "5s"),
    ],
)
def test_all_fields_are_read_at_the_shortest_interval_of_the_file(
    tmp_path: Path, text: str, interval: str
) -> None:
    found = written(tmp_path, text)
    assert value_at(found.text, "sources.gpus.interval") == interval
    assert value_at(found.text, "sources.gpus.slow_interval") == interval
    assert not any("interval" in text for _, text in found.remarks)


def test_options_and_variables_take_precedence_over_the_file(tmp_path: Path) -> None:
    env = {"DCGM_EXPORTER_INTERVAL": "60000"}
    found = written(tmp_path, V2, "-f", "/y.csv", **env)
    assert value_at(found.text, "counters.file") == "/y.csv"
    assert value_at(found.text, "sources.gpus.interval") == "1m"
    (warning,) = [text for _, text in found.remarks if "interval" in text]
    assert warning.endswith(
        "collections[0].every: 5000 ms is shorter than the interval in use, 60000 ms: podgpu reads "
        "all fields at one interval"
    )


class TestFieldsInTheFile:
    def test_they_are_the_rows_of_the_counters_list(self, tmp_path: Path) -> None:
        found = written(tmp_path, INLINE)
        assert value_at(found.text, "counters.file") is None
        setting = found.config.counters
        reading = planned(text_of_rows(setting.rows), setting)
        assert reading.complaints == ()
        assert reading.plan is not None
        assert [(row.metric, row.type, row.help) for row in reading.plan.rows if row.metric] == [
            ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature."),
            ("DCGM_FI_DEV_FB_USED", "gauge", 'Memory, in "MiB".'),
        ]
        assert [label.label for label in reading.plan.labels] == ["DCGM_FI_DRIVER_VERSION"]

    @pytest.mark.parametrize(
        ("words", "place"), [("-f /y.csv", "counters.file"), ("-m a:b", "counters.configmap")]
    )
    def test_options_replace_them(self, tmp_path: Path, words: str, place: str) -> None:
        found = written(tmp_path, INLINE, *words.split())
        assert value_at(found.text, place) == words.split()[1]
        assert value_at(found.text, "counters.rows") is None

    def test_so_does_a_variable(self, tmp_path: Path) -> None:
        found = written(tmp_path, INLINE, DCGM_EXPORTER_COLLECTORS="/y.csv")
        assert value_at(found.text, "counters.file") == "/y.csv"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("version: 3", "c.yaml:1:10: version: must be 1 or 2"),
        ("metrics: {file: /x}", "c.yaml:1:1: version: this key is missing"),
        ("version: 2\nmetric: {}", "c.yaml:2:1: metric: unknown key; did you mean"),
        ("version: 1\ncollections: [{name: a, every: 1s, metrics: {include: [a]}}]", "write v"),
        ("version: 2\ncollection: {interval: 1s}", "collection: belongs to version 1"),
        ("version: 1\ncollection: {interval: 5}", 'collection.interval: "5" is not a duration'),
        ("version: 1\ncollection: {interval: 500us}", "is not a whole number of milliseconds"),
        ("version: 1\nmetrics: {configMap: {name: a}}", "metrics.configMap: unknown key"),
        ("version: 1\nmetrics: {file: /a, file: /b}", "metrics.file: duplicate key"),
        (
            "version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: []}]}",
            "collection.watchGroups[0].fields: ",
        ),
        (
            "version: 2\ncollections: [{name: a, every: 1s, metrics: {include: []}}]",
            "collections[0].metrics.include: ",
        ),
        (
            "version: 2\nmetrics: {file: /x, fields: [{name: A, prometheusType: gauge, help: b}]}",
            "c.yaml:2:29: metrics.fields: file is set too: remove one of the two",
        ),
        ("version: [", "c.yaml"),
    ],
)
def test_an_error_in_the_file_is_reported(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigError) as found:
        written(tmp_path, text)
    assert error in str(found.value)


def test_an_error_found_later_names_the_key_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        written(tmp_path, "version: 1\nmetrics: {file: x.csv}\ncollection: {interval: 9999999h}")
    assert f"{tmp_path / 'c.yaml'}: collection.interval: " in str(found.value)
