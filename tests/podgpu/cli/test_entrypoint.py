"""The image's entry point script, with a fake podgpu that prints its arguments."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "image" / "entrypoint"
FAKE_PODGPU = """\
#!/bin/sh
echo "$$" "$@"
"""


def started(tmp_path: Path, *words: str, name: str = "podgpu-entrypoint", **env: str) -> str:
    """Return the arguments that podgpu gets; it must replace the script's process."""
    folder = tmp_path / "bin"
    folder.mkdir()
    podgpu = folder / "podgpu"
    podgpu.write_text(FAKE_PODGPU)
    podgpu.chmod(0o755)
    link = folder / name
    link.symlink_to(SCRIPT)
    process = subprocess.Popen(
        [link, *words],
        env={"PATH": f"{folder}:{os.defpath}"} | env,
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate(timeout=10)
    pid, _, rest = output.strip().partition(" ")
    assert int(pid) == process.pid
    return rest


OPERATOR = {
    "DCGM_EXPORTER_LISTEN": ":9400",
    "DCGM_EXPORTER_KUBERNETES": "true",
    "DCGM_EXPORTER_COLLECTORS": "/etc/dcgm-exporter/dcp-metrics-included.csv",
}
SERVICE = {"DCGM_EXPORTER_PORT": "tcp://10.0.0.1:9400", "DCGM_EXPORTER_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("words", "env", "arguments"),
    [
        (["-f", "/x y.csv", "-k"], {}, "dcgm-exporter -f /x y.csv -k"),
        (["--kubernetes"], OPERATOR, "dcgm-exporter --kubernetes"),
        (["dcgm-exporter", "-f", "x"], {}, "dcgm-exporter -f x"),
        (["/usr/bin/dcgm-exporter", "-f", "x"], {}, "dcgm-exporter -f x"),
        (["/usr/local/dcgm/dcgm-exporter-entrypoint.sh", "-k"], {}, "dcgm-exporter -k"),
        ([], OPERATOR, "dcgm-exporter"),
        ([], {"KUBERNETES_VIRTUAL_GPUS": "true"}, "dcgm-exporter"),
        ([], {}, "run"),
        ([], {"NODE_NAME": "n", "DCGM_EXPORTER_KUBERNETES": ""}, "run"),
        ([], SERVICE, "run"),
        (["run", "-c", "/etc/x.yaml"], OPERATOR, "run -c /etc/x.yaml"),
        (["podgpu", "run"], OPERATOR, "run"),
        (["check"], {}, "check"),
        (["--help"], {}, "--help"),
        (["--version"], OPERATOR, "--version"),
        (["help"], {}, "dcgm-exporter help"),
        (["h"], OPERATOR, "dcgm-exporter h"),
        (["version"], {}, "dcgm-exporter version"),
    ],
)
def test_arguments_and_variables_decide_the_command(
    tmp_path: Path, words: list[str], env: dict[str, str], arguments: str
) -> None:
    assert started(tmp_path, *words, **env) == arguments


@pytest.mark.parametrize("name", ["dcgm-exporter", "dcgm-exporter-entrypoint.sh"])
@pytest.mark.parametrize(("words", "arguments"), [([], ""), (["-k"], " -k"), (["run"], " run")])
def test_a_name_of_dcgm_exporter_starts_the_dcgm_exporter_command(
    tmp_path: Path, name: str, words: list[str], arguments: str
) -> None:
    assert started(tmp_path, *words, name=name) == f"dcgm-exporter{arguments}"
