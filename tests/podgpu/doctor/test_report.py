"""Findings as text and as JSON, to the letter.

`PODGPU_WRITE_GOLDEN=1` writes the files anew; look at the difference before you keep it.
"""

import json
import os
from pathlib import Path

import pytest

from pipeline.base.version import VERSION
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_table import CHECKS
from podgpu.doctor.report import Subject, as_json, as_text

GOLDEN = Path(__file__).parents[2] / "golden" / "doctor"
SUBJECT = Subject("gpu-17", "/etc/podgpu/config.yaml")
FINDINGS = [
    CHECKS["config"].ok("/etc/podgpu/config.yaml", "good: sources 2, sinks 1"),
    CHECKS["nvml.driver"].ok("/proc/driver/nvidia/version", "driver 580.95.05, 8 GPUs"),
    CHECKS["nvml.library"].failure(
        "libnvidia-ml.so.1",
        "driver 580.95.05 is on the host, its library isn't here: libnvidia-ml.so.1: cannot open "
        "shared object file: No such file or directory",
        "run podgpu with the runtime class of NVIDIA's container toolkit (runtimeClassName: "
        "nvidia), or make that the default runtime (nvidia-ctk runtime configure)",
    ),
    CHECKS["nvml.profiling"].skip("nvmlGpmQueryDeviceSupport", "nobody asked for them"),
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
def test_the_forms_to_the_letter(name: str, show: object) -> None:
    assert callable(show)
    given_out = shown(show(SUBJECT, FINDINGS))
    path = GOLDEN / name
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(given_out)
    assert given_out == path.read_text()


def test_json_has_all_that_a_finding_has() -> None:
    given_out = json.loads(as_json(SUBJECT, FINDINGS))
    assert given_out["status"] == 2
    assert [each["check"] for each in given_out["findings"]] == [each.check for each in FINDINGS]
    assert given_out["findings"][-1]["component"] == "source kubelet"


def test_a_word_is_never_broken_and_lines_of_others_become_one() -> None:
    path = "/" + "x" * 150
    finding = CHECKS["nri.socket"].failure(path, "two\nlines", "mend\tit")
    text = as_text(Subject("", "kubeconfig"), [finding])
    assert path in text
    assert "two lines" in text
    assert "fix: mend it" in text
    assert text.endswith("\n1 failure")


FOREIGN = "a\x1b[2J\x1b]0;title\x07\u202e\udcffb"


def test_no_text_of_others_is_obeyed_by_a_terminal() -> None:
    finding = Finding("nri.socket", Verdict.FAILURE, FOREIGN, FOREIGN, FOREIGN, FOREIGN)
    text = as_text(Subject(FOREIGN, FOREIGN), [finding])
    assert all(part.isprintable() for part in text.split("\n"))
    assert text.count("title") == 6


def test_a_text_without_an_end_is_cut() -> None:
    finding = CHECKS["nri.socket"].failure("a", "x" * 10**6, "b")
    assert len(as_text(SUBJECT, [finding])) < 10_000


def test_json_takes_any_text() -> None:
    finding = Finding("nri.socket", Verdict.FAILURE, FOREIGN, FOREIGN, FOREIGN, FOREIGN)
    given_out = json.loads(as_json(Subject(FOREIGN, FOREIGN), [finding]))
    expected = FOREIGN.replace("\udcff", "?")
    assert given_out["node"] == given_out["origin"] == expected
    assert {given_out["findings"][0][key] for key in ("saw", "mend", "component", "looked_at")} == {
        expected
    }
