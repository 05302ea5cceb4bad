"""`podgpu topology`, run as a user does.

`PODGPU_WRITE_GOLDEN=1` writes the golden files again; check the difference before you commit it.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.http.builtin_pages import Pages
from pipeline.model import (
    DevicesDiscovered,
    Envelope,
    Event,
    SourceAdded,
    TopologyRead,
)
from pipeline.recording import Header, RecordingWriter
from podgpu.cli import daemon_client
from podgpu.cli.topology import command
from tests.fakes.nvml import FakeNvml, Scenario
from tests.fakes.nvml.fixtures import fake_nvml
from tests.fakes.nvml.topologies import dgx1, hgx
from tests.podgpu.cli.topology_command import daemon, run, run_in_thread
from tests.sources.nvml.harness import GPU
from tests.support.http import says
from tests.support.nodes import START, at, claim, claims, gpu, mig, uuid_of
from tests.support.topology import topology_read

__all__ = ["fake_nvml"]

GOLDEN = Path(__file__).parents[2] / "golden" / "cli"
DEVICES = [gpu(index) for index in range(8)]
INSTANCE = mig(DEVICES[1], 1, profile="3g.40gb")
EVENTS: list[tuple[str, Event]] = [
    ("nvml", SourceAdded(0)),
    ("nvml", DevicesDiscovered((*DEVICES, INSTANCE))),
    ("nvml", topology_read(*DEVICES)),
    ("podlist", SourceAdded(1)),
    ("podlist", claims(claim("train-0", uuid_of(0)), claim("serve-a", INSTANCE.uuid, share=0.5))),
]


def recording(path: Path, events: Sequence[tuple[str, Event]] = EVENTS) -> Path:
    with RecordingWriter(path, Header("0.1.0", "node-1", START)) as writer:
        for seq, (kind, event) in enumerate(events, 1):
            writer.write(Envelope(kind, kind, seq, at(seq), event))
    return path


# -- with a recording


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("topology.txt", ()),
        ("topology.json", ("--json",)),
        ("topology.dot", ("--dot",)),
        ("topology-best.txt", ("best", "-n", "3", "--must", "5")),
        ("topology-best.json", ("best", "-n", "3", "--must", "5", "--json")),
    ],
)
def test_the_output_equals_the_golden_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: tuple[str, ...]
) -> None:
    file = recording(tmp_path / "recording.gz")
    status, out, err = run(capsys, "--recording", str(file), *words)
    assert status == 0
    file = GOLDEN / name
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.write_text(out + err)
    assert out + err == file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
@pytest.mark.parametrize("words", [(), ("--dot",), ("--json",), ("best", "-n", "2")])
def test_stdout_may_lack_characters(tmp_path: Path, encoding: str, words: tuple[str, ...]) -> None:
    pod = claims(claim("zug-ü-日", uuid_of(0)))
    file = recording(tmp_path / "recording.gz", [*EVENTS, ("podlist", pod)])
    command = [sys.executable, "-m", "podgpu", "topology", *words, "--recording", str(file)]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, env=env, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    if not words:
        assert b"\n|  |- GPU0 " in done.stdout
        assert b"\n   `- GPU7 " in done.stdout


@pytest.mark.slow
def test_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """It has not the status of too few GPUs."""
    file = recording(tmp_path / "recording.gz")
    command = [sys.executable, "-m", "podgpu", "topology", "best", "-n", "1"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, "--recording", str(file)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("podgpu topology: the result can't be written: No space left")


def test_options_can_be_given_before_or_after_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--recording", str(recording(tmp_path / "recording.gz")))
    before = run(capsys, *options, "best", "-n", "2")
    assert before == run(capsys, "best", *options, "-n", "2")
    assert before[0] == 0


def test_the_last_state_of_a_recording_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [*EVENTS, ("podlist", claims(claim("late", uuid_of(7))))]
    file = recording(tmp_path / "recording.gz", more)
    _, out, _ = run(capsys, "--recording", str(file), "--json")
    assert json.loads(out)["free"] == "7f"


def test_a_recording_without_a_topology_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(tmp_path / "recording.gz", EVENTS[:2])
    status, out, err = run(capsys, "--recording", str(file))
    assert (status, out) == (1, "")
    assert "contains no topology: make a new recording" in err


def test_best_needs_a_recording_that_shows_which_gpus_are_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(tmp_path / "recording.gz", EVENTS[:4])
    status, out, err = run(capsys, "--recording", str(file), "best", "-n", "1")
    assert (status, out) == (1, "")
    assert "is unknown which GPUs are free: no source that lists" in err
    status, out, _ = run(capsys, "--recording", str(file), "best", "-n", "1", "--candidates", "5")
    assert (status, out.split()[0]) == (0, "5")
    file = recording(tmp_path / "other.gz", EVENTS[:3])
    status, out, err = run(capsys, "--recording", str(file), "best", "-n", "1")
    assert status == 0
    assert err.startswith("no source reports the holders, so held GPUs may be among them; ")


@pytest.mark.parametrize("content", [None, b"", b"something else"])
def test_a_missing_or_invalid_recording_ends_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    file = tmp_path / "recording.gz"
    if content is not None:
        file.write_bytes(content)
    status, out, err = run(capsys, "--recording", str(file), "best", "-n", "1")
    assert (status, out) == (2, "")
    assert str(file) in err
    assert len(err.splitlines()) == 1


# -- with a daemon


async def test_a_daemon_is_queried(capsys: pytest.CaptureFixture[str]) -> None:
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        status, text, _ = await run_in_thread(capsys, "--url", url)
        assert status == 0
        assert "ml/train-0" in text
        _, printed, _ = await run_in_thread(capsys, "--json", "--url", f"{url}/")
        assert json.loads(printed)["free"] == "fc"
        _, graph, _ = await run_in_thread(capsys, "--dot", "--url", url)
        assert graph.startswith("graph topology {")
        status, best, why = await run_in_thread(
            capsys, "best", "-n", "2", "--must", "5", "--url", url
        )
        assert status == 0
        assert best == f"4\t{uuid_of(4)}\n5\t{uuid_of(5)}\n"
        assert "link score" in why
        status, _, why = await run_in_thread(capsys, "best", "-n", "7", "--url", url)
        assert (status, "GPUs to choose from: 6; held: GPU 0 by ml/train-0" in why) == (3, True)


async def test_without_options_the_daemon_of_this_machine_is_queried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(command, "LOCAL", url)
        status, out, err = await run_in_thread(capsys, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["free"] == "fc"


async def test_an_error_of_the_daemon_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        result = await run_in_thread(capsys, "--url", url, "best", "-n", "1", "--must", "8")
    assert result == (
        2,
        "",
        "podgpu: there is no GPU '8' here: name some of GPU 0-7 by index or uuid\n",
    )


async def unknown(_: HttpRequest) -> HttpResponse:
    return HttpResponse(b"no source reports the topology\n", status=404)


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ({}, "responded with status 404: not found"),
        ({"/topology/best": (unknown, "")}, "responded with status 404: no source reports"),
        ({"/topology/best": (says("<html>"), "")}, "the response is not from podgpu"),
        ({"/topology/best": (says(b"\xff"), "")}, "the response is not from podgpu"),
        ({"/topology/best": (says("[]"), "")}, "the response is not from podgpu"),
        ({"/topology/best": (says('{"gpus": [1]}'), "")}, "the response is not from podgpu"),
    ],
)
async def test_unusable_responses_are_errors(
    capsys: pytest.CaptureFixture[str], pages: Pages, why: str
) -> None:
    async with daemon(pages) as port:
        url = f"http://127.0.0.1:{port}"
        status, out, err = await run_in_thread(capsys, "best", "--url", url, "-n", "1")
    assert (status, out) == (1, "")
    assert url in err
    assert why in err


async def test_a_response_that_is_too_large_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_client, "_MAX_BYTES", 100)
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        status, _, err = await run_in_thread(capsys, "--url", url)
    assert status == 1
    assert "larger than 100 bytes" in err


@pytest.fixture
def unused_url() -> str:
    """Return a URL whose port nothing listens on."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{reserved.getsockname()[1]}"


def test_a_daemon_that_does_not_run_is_an_error(
    capsys: pytest.CaptureFixture[str], unused_url: str
) -> None:
    status, out, err = run(capsys, "--url", unused_url)
    assert (status, out) == (1, "")
    assert err == f"podgpu: no server responds at {unused_url}: Connection refused\n"


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "http://", "http://x:port", "http://[::1", "http://x/?a=b", ""],
)
def test_an_invalid_address_ends_with_status_2(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    status, out, err = run(capsys, "--url", url)
    assert (status, out) == (2, "")
    assert "give an address such as http://localhost:9400" in err


@pytest.mark.parametrize(
    "url",
    [
        "http://me:secret@localhost",
        "https://me:secret@node-1:9400/",
        "ftp://me:secret@localhost",
        "me:secret@localhost:9400",
        "http://me:sec/ret@localhost",
        "http://me:secret@[::1",
    ],
)
def test_a_password_in_an_address_is_refused(capsys: pytest.CaptureFixture[str], url: str) -> None:
    status, out, err = run(capsys, "--url", url)
    assert (status, out) == (2, "")
    assert "do not put a user name or password in the address" in err
    assert "give --user, and --password-file or the variable PODGPU_PASSWORD" in err
    assert "sec" not in err


# -- on this machine


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a configuration."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_local_reads_the_driver_of_this_machine(
    fake_nvml: FakeNvml, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.set(dgx1())
    status, out, _ = run(capsys, "--local")
    assert status == 0
    rows = [line.split() for line in out.splitlines()[1:9]]
    assert rows[0][:9] == ["GPU0", "X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"]
    assert rows[7][:9] == ["GPU7", "SYS", "SYS", "SYS", "NV1", "NV2", "NV1", "NV2", "X"]
    status, out, _ = run(capsys, "best", "-n", "2", "--local", "--json")
    assert (status, json.loads(out)["among"]) == (0, "all")


@pytest.mark.slow
def test_without_a_daemon_the_driver_is_read(
    fake_nvml: FakeNvml,
    empty_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    unused_url: str,
) -> None:
    monkeypatch.setattr(command, "LOCAL", unused_url)
    fake_nvml.set(hgx(4))
    status, out, err = run(capsys, "--json")
    assert status == 0
    assert f"no server responds at {unused_url}: Connection refused; reading NVML" in err
    assert json.loads(out)["nvlink"] == [{"kind": "switch", "mask": "f"}]
    assert "free" not in json.loads(out), "no source reports the holders"


@pytest.mark.slow
def test_sources_of_the_configuration_report_the_holders(
    fake_nvml: FakeNvml, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.set(hgx(2))
    held = {"namespace": "ml", "name": "train-0", "container": "main", "gpu_list": [GPU[1]]}
    (empty_folder / "podlist.json").write_text(json.dumps([held]))
    (empty_folder / "podgpu.yaml").write_text(
        "sources:\n"
        "  gpus: {kind: nvml}\n"
        f"  holders: {{kind: podlist, path: {empty_folder / 'podlist.json'}}}\n"
        "  more: {kind: pods}\n"
        "sinks:\n"
        "  metrics: {kind: prometheus, listen: ':1'}\n"
    )
    status, out, err = run(capsys, "--local", "--json")
    assert (status, err) == (0, "podgpu: using podgpu.yaml\n")
    assert json.loads(out)["free"] == "1"


def test_a_missing_driver_is_an_error(
    fake_nvml: FakeNvml, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.set(Scenario(init_error=9))
    status, out, err = run(capsys, "--local")
    assert (status, out) == (1, "")
    assert "the NVIDIA kernel driver is not loaded" in err
    assert len(err.splitlines()) == 2, "which configuration, and the error"


@pytest.mark.slow
def test_a_driver_that_does_not_respond_is_an_error(
    fake_nvml: FakeNvml,
    empty_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "SECONDS", 0.2)
    fake_nvml.set(Scenario(gpus=hgx(1).gpus, block={"nvmlInitWithFlags": 60.0}))
    status, _, err = run(capsys, "--local")
    assert status == 1
    assert "has not responded for 0.2 s" in err


def test_sources_that_could_disturb_a_daemon_are_not_used() -> None:
    assert {"nri", "pods", "replay"}.isdisjoint(command.READING)


def test_the_events_of_the_recording_contain_a_topology() -> None:
    assert isinstance(EVENTS[2][1], TopologyRead)
