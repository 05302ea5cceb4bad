"""The chart's table of names, by which alerts and dashboards follow the label form."""

import os

import pytest
import yaml

from tests.deploy.forms import ALL, Renamed, in_names
from tests.deploy.places import CHART

FILE = CHART / "files" / "forms.yaml"


def test_the_table_has_the_names_that_the_exposition_uses() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the table."""
    head = (
        "# Names of labels and metrics in each label form, by their names in the form dcgm "
        "(docs/sinks/prometheus.md).\n"
    )
    forms = {form: dict(names) for form, names in ALL.items()}
    made = head + yaml.safe_dump(forms, sort_keys=False)
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        FILE.write_text(made, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == made


@pytest.mark.parametrize("names", ALL.values(), ids=ALL)
def test_no_new_name_is_also_an_old_name(names: Renamed) -> None:
    """Otherwise the result of a replacement would depend on the order."""
    for new in names.values():
        assert new not in names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max by (UUID, pod) (podgpu_pod_info)", "max by (uuid, pod_name) (podgpu_pod_info)"),
        ('x{pod=~"$pod",namespace="$namespace"}', 'x{pod_name=~"$pod",pod_namespace="$namespace"}'),
        ("GPU_UUID + xUUID", "GPU_UUID + xUUID"),
    ],
)
def test_only_whole_words_are_replaced(text: str, expected: str) -> None:
    assert in_names(text, ALL["dcgm-old"]) == expected
