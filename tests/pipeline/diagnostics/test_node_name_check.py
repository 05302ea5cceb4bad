"""The check `node.name`."""

from functools import partial
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from pipeline.diagnostics import node_name_check
from pipeline.diagnostics.check_runner import findings_of
from tests.podgpu.doctor.support import context, is_bad, of


@pytest.mark.parametrize(
    ("text", "environ", "verdict"),
    [
        ("node: gpu-1\n", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Verdict.OK),
        ("", {}, Verdict.OK),
        ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Verdict.WARNING),
    ],
)
async def test_in_a_pod_without_a_configured_node_name_a_warning_is_reported(
    tmp_path: Path, text: str, environ: dict[str, str], verdict: Verdict
) -> None:
    found = await findings_of(
        partial(node_name_check.examine, context(tmp_path, text, environ=environ))
    )
    assert of(found, "node.name").verdict is verdict
    if verdict is Verdict.WARNING:
        is_bad(found[0], "warning", "in a pod that is the name of the pod", "spec.nodeName")
