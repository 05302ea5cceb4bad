"""What a newcomer types first: a part of a name, a kind, a command or a page of other programs."""

import pytest

from pipeline.base.errors import PermanentError
from pipeline.component.registry import KINDS
from podgpu.cli.commands import run_command
from podgpu.cli.daemon_client import place

Capsys = pytest.CaptureFixture[str]


def run(capsys: Capsys, *words: str) -> tuple[int, str, str]:
    try:
        code = run_command(words)
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("kind", sorted({kind for _, kind in KINDS}))
def test_one_kind_is_shown_alone(capsys: Capsys, kind: str) -> None:
    code, out, err = run(capsys, "kinds", kind)
    assert (code, err) == (0, "")
    heads = [line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")]
    assert heads == [f"{role} {name}" for role, name in KINDS if name == kind]
    assert heads


@pytest.mark.parametrize(
    ("word", "hint"), [("nvlm", 'did you mean "nvml"?'), ("zzzz", "the kinds are checkpoint, ")]
)
def test_an_unknown_kind_is_an_error(capsys: Capsys, word: str, hint: str) -> None:
    code, out, err = run(capsys, "kinds", word)
    assert (code, out) == (2, "")
    assert err.startswith("podgpu: there is no such kind of source or sink; ")
    assert hint in err


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("gpu_util", "gpu_utilization_percent"),
        ("GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL"),
        ("nvlink", "DCGM_FI_PROF_NVLINK_RX_BYTES"),
        ("hw.gpu.util", "gpu_utilization_percent"),
    ],
)
def test_a_part_of_a_name_finds_fields(capsys: Capsys, word: str, field: str) -> None:
    code, out, err = run(capsys, "fields", word)
    assert (code, err) == (0, "")
    assert field in out
    for row in out.splitlines()[1:]:
        assert word.casefold() in row.casefold()


def test_a_whole_name_finds_only_its_fields(capsys: Capsys) -> None:
    _, out, _ = run(capsys, "fields", "DCGM_FI_DEV_GPU_UTIL")
    assert len(out.splitlines()) == 2


def test_a_text_that_no_name_contains_is_an_error(capsys: Capsys) -> None:
    code, out, err = run(capsys, "fields", "no_such_thing")
    assert (code, out) == (1, "")
    assert "no_such_thing" in err


@pytest.mark.parametrize(
    ("word", "command"),
    [("status", "top"), ("ps", "top"), ("start", "run"), ("validate", "check"), ("stats", "top")],
)
def test_a_command_of_other_programs_leads_to_that_of_podgpu(
    capsys: Capsys, word: str, command: str
) -> None:
    code, out, err = run(capsys, word)
    assert (code, out) == (2, "")
    assert f'there is no such command; did you mean "{command}"?' in err


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("http://localhost:9400/status", "http://localhost:9400"),
        ("http://localhost:9400/metrics/", "http://localhost:9400"),
        ("https://gpus.example/node-1/topology", "https://gpus.example/node-1"),
    ],
)
def test_the_address_of_a_page_is_refused_with_that_of_the_daemon(url: str, given: str) -> None:
    with pytest.raises(PermanentError) as error:
        place(url)
    assert "without the page /" in str(error.value)
    assert str(error.value).endswith(f": give {given}")


@pytest.mark.parametrize("url", ["http://localhost:9400/", "https://gpus.example/status/node-1"])
def test_the_address_of_a_daemon_behind_a_proxy_may_have_a_path(url: str) -> None:
    assert place(url) == url
