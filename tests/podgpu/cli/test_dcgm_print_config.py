"""A printed configuration is read back as the same configuration."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.shipped_lists import SHIPPED_LISTS
from podgpu.cli import main
from podgpu.cli.dcgm_exporter.config_builder import ConfigDraft, yaml_text
from podgpu.cli.dcgm_exporter.option_table import OPTIONS
from tests.podgpu.cli.dcgm_configs import config_of, parsed, value_at

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "cli"

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
PLACES = st.tuples(st.sampled_from(["a", "b.c", "b.d", "e.f.g"]), TEXTS)


@given(st.lists(PLACES), st.lists(TEXTS, max_size=3))
def test_any_text_is_written_and_read_back_unchanged(
    places: list[tuple[str, str]], items: list[str]
) -> None:
    draft = ConfigDraft()
    draft.put("list", tuple(items))
    for place, value in places:
        draft.put(place, value, value)
    text = yaml_text(draft, items)
    read_back = yaml.safe_load(text)
    assert read_back["list"] == [item.replace("${", "$${") for item in items]
    for place, value in dict(places).items():
        assert value_at(text, place) == value.replace("${", "$${")


def _words() -> st.SearchStrategy[list[str]]:
    values: dict[str, st.SearchStrategy[str]] = {
        "collect-interval": st.integers(100, 10**9).map(str),
        "xid-count-window-size": st.integers(1000, 10**7).map(str),
        "clock-events-count-window-size": st.integers(1000, 10**7).map(str),
        "configmap-data": st.sampled_from(["none", "ns:name"]),
        "devices": st.sampled_from(["f", "g", "i", "g:0", "i:0,2-4", "g+i:1"]),
        "kubernetes-gpu-id-type": st.sampled_from(["uid", "device-name"]),
        "log-format": st.sampled_from(["text", "json"]),
        "dcgm-log-level": st.sampled_from(["NONE", "VERB"]),
        "labels": st.sampled_from(["dcgm", "dcgm-hostname", "dcgm-old", "dcgm-1x"]),
        "remote-hostengine-info": st.sampled_from(["h:1", "h", "tcp://h:1", "unix:///x"]),
        "address": st.sampled_from([":9400", "localhost:1", "[::1]:0"]),
        "kubernetes-pod-label-allowlist-regex": st.sampled_from(["a", "^a$,b", "${x}", "#"]),
        "nvidia-resource-names": st.sampled_from(["a.com/x", "a,b", "*"]),
        "config-file": st.nothing(),
    }
    by_type = {
        str: TEXTS,
        int: st.integers(0, 10**6).map(str),
        bool: st.sampled_from(["true", "false"]),
        tuple: TEXTS,
    }
    one = st.one_of(
        *(
            values.get(option.name, by_type[option.value_type]).map(
                f"{option.flags[0]}={{}}".format
            )
            for option in OPTIONS
        )
    )
    return st.lists(one, max_size=12)


@given(_words())
def test_any_options_are_printed_as_the_configuration_that_is_used(words: list[str]) -> None:
    found = config_of(*words)
    assert parsed(found, {}) == found.config


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("defaults", ""),
        (
            "everything",
            (
                "-f /etc/dcgm-exporter/dcp-metrics-included.csv -c 15000 -k -d g:0-3 "
                "-r localhost:5555 --kubernetes-enable-pod-labels "
                "--kubernetes-pod-label-allowlist-regex ^app$,team "
                "--kubernetes-enable-pod-uid --kubernetes-virtual-gpus --rbmn -n --debug "
                "--web-config-file /etc/web.yaml --hpc-job-mapping-dir /jobs --dump-enabled"
            ),
        ),
    ],
)
def test_the_printed_configuration_equals_the_golden_file(
    name: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the files again; check the difference before you commit it."""
    import os

    for option in OPTIONS:
        monkeypatch.delenv(option.variable or "_", raising=False)
    assert main(["dcgm-exporter", *words.split(), "--print-config"]) == 0
    printed = capsys.readouterr().out.replace(str(SHIPPED_LISTS), "SHIPPED_LISTS")
    path = GOLDEN / f"dcgm-exporter-{name}.yaml"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(printed, encoding="utf-8")
    assert printed == path.read_text(encoding="utf-8")


def test_an_invalid_option_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dcgm-exporter", "-c", "0", "--print-config"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "milliseconds" in output.err
