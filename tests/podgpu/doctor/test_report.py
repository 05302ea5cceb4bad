"""Findings as text and as JSON.

`PODGPU_WRITE_GOLDEN=1` writes the golden files again; check the differences before you keep them.
"""

import json
import os
from pathlib import Path

import pytest

from pipeline.base.version import VERSION
from pipeline.component.findings import FAILS, WARNS, Check, Finding, Verdict
from podgpu.doctor.report import Subject, as_json, as_text

GOLDEN = Path(__file__).parents[2] / "golden" / "doctor"
SUBJECT = Subject("gpu-17", "/etc/podgpu/config.yaml")
FINDINGS = [
    Check("config", FAILS).ok("/etc/podgpu/config.yaml", "valid: sources 2, sinks 1"),
    Check("nvml.driver", FAILS).ok("/proc/driver/nvidia/version", "driver 580.95.05, 8 GPUs"),
    Check("nvml.library", FAILS).failure(
        "libnvidia-ml.so.1",
        "driver 580.95.05 is on the host, its library isn't here: libnvidia-ml.so.1: cannot open "
        "shared object file: No such file or directory",
        "run podgpu with the runtime class of NVIDIA's container toolkit (runtimeClassName: "
        "nvidia), or make that the default runtime (nvidia-ctk runtime configure)",
    ),
    Check("nvml.profiling", WARNS).skip(
        "nvmlGpmQueryDeviceSupport", "no profiling field is configured"
    ),
    Finding(
        "podresources.sharing",
        Verdict.WARNING,
        "ids of the devices",
        "nvidia.com/gpu: shares of GPUs",
        "nothing, if that is meant",
        "source kubelet",
    ),
]


def shown(text: str) -> str:
    return text.replace(VERSION, "VERSION") + "\n"


@pytest.mark.parametrize(
    ("name", "show"),
    [("findings.txt", as_text), ("findings.json", as_json)],
)
def test_text_and_json_equal_the_golden_files(name: str, show: object) -> None:
    assert callable(show)
    output = shown(show(SUBJECT, FINDINGS))
    path = GOLDEN / name
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(output)
    assert output == path.read_text()


def test_json_contains_the_status_and_each_finding() -> None:
    document = json.loads(as_json(SUBJECT, FINDINGS))
    assert document["status"] == 2
    assert [each["check"] for each in document["findings"]] == [each.check for each in FINDINGS]
    assert document["findings"][-1]["component"] == "source kubelet"


def test_long_words_are_not_wrapped_and_line_breaks_become_spaces() -> None:
    path = "/" + "x" * 150
    finding = Check("nri.socket", FAILS).failure(path, "two\nlines", "fix\tit")
    text = as_text(Subject("", "kubeconfig"), [finding])
    assert path in text
    assert "two lines" in text
    assert "fix: fix it" in text
    assert text.endswith("\n1 failure")


CONTROL_CHARACTERS = "a\x1b[2J\x1b]0;title\x07\u202e\udcffb"


def test_control_characters_do_not_reach_the_terminal() -> None:
    finding = Finding(
        "nri.socket",
        Verdict.FAILURE,
        CONTROL_CHARACTERS,
        CONTROL_CHARACTERS,
        CONTROL_CHARACTERS,
        CONTROL_CHARACTERS,
    )
    text = as_text(Subject(CONTROL_CHARACTERS, CONTROL_CHARACTERS), [finding])
    assert all(part.isprintable() for part in text.split("\n"))
    assert text.count("title") == 6


def test_a_very_long_text_is_truncated() -> None:
    finding = Check("nri.socket", FAILS).failure("a", "x" * 10**6, "b")
    assert len(as_text(SUBJECT, [finding])) < 10_000


def test_json_can_contain_any_text() -> None:
    finding = Finding(
        "nri.socket",
        Verdict.FAILURE,
        CONTROL_CHARACTERS,
        CONTROL_CHARACTERS,
        CONTROL_CHARACTERS,
        CONTROL_CHARACTERS,
    )
    document = json.loads(as_json(Subject(CONTROL_CHARACTERS, CONTROL_CHARACTERS), [finding]))
    expected = CONTROL_CHARACTERS.replace("\udcff", "?")
    assert document["node"] == document["origin"] == expected
    assert {document["findings"][0][key] for key in ("saw", "mend", "component", "looked_at")} == {
        expected
    }
