"""`podgpu topology`, as a user meets it.

`PODGPU_WRITE_GOLDEN=1` writes the files anew; look at the difference before you keep it.
"""

import json
import os
import socket
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
from podgpu.cli.topology import command, local_topology
from tests.fakes.nvml import FakeNvml, Scenario
from tests.fakes.nvml.fixtures import fake_nvml
from tests.fakes.nvml.topologies import dgx1, hgx
from tests.podgpu.cli.asked import ask, daemon, run
from tests.sources.nvml.harness import GPU
from tests.support.http import says
from tests.support.joints import joints
from tests.support.nodes import START, at, claim, claims, gpu, mig, uuid_of

__all__ = ["fake_nvml"]

GOLDEN = Path(__file__).parents[2] / "golden" / "cli"
DEVICES = [gpu(index) for index in range(8)]
INSTANCE = mig(DEVICES[1], 1, profile="3g.40gb")
EVENTS: list[tuple[str, Event]] = [
    ("nvml", SourceAdded(0)),
    ("nvml", DevicesDiscovered((*DEVICES, INSTANCE))),
    ("nvml", joints(*DEVICES)),
    ("podlist", SourceAdded(1)),
    ("podlist", claims(claim("train-0", uuid_of(0)), claim("serve-a", INSTANCE.uuid, share=0.5))),
]


def recording(path: Path, events: Sequence[tuple[str, Event]] = EVENTS) -> Path:
    with RecordingWriter(path, Header("0.1.0", "node-1", START)) as writer:
        for seq, (kind, event) in enumerate(events, 1):
            writer.write(Envelope(kind, kind, seq, at(seq), event))
    return path


# -- of a recording


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
def test_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: tuple[str, ...]
) -> None:
    file = recording(tmp_path / "recording.gz")
    status, out, err = run(capsys, "--recording", str(file), *words)
    assert status == 0
    file = GOLDEN / name
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.write_text(out + err)
    assert out + err == file.read_text()


def test_where_may_stand_before_best_and_behind_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--recording", str(recording(tmp_path / "recording.gz")))
    before = run(capsys, *where, "best", "-n", "2")
    assert before == run(capsys, "best", *where, "-n", "2")
    assert before[0] == 0


def test_what_a_recording_ends_with_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [*EVENTS, ("podlist", claims(claim("late", uuid_of(7))))]
    file = recording(tmp_path / "recording.gz", more)
    _, out, _ = run(capsys, "--recording", str(file), "--json")
    assert json.loads(out)["free"] == "7f"


def test_a_recording_that_reports_no_topology(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(tmp_path / "recording.gz", EVENTS[:2])
    status, out, err = run(capsys, "--recording", str(file))
    assert (status, out) == (1, "")
    assert "contains no topology: make a new recording" in err


def test_a_recording_of_which_it_isn_t_known_what_is_free(
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
def test_what_is_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    file = tmp_path / "recording.gz"
    if content is not None:
        file.write_bytes(content)
    status, out, err = run(capsys, "--recording", str(file), "best", "-n", "1")
    assert (status, out) == (2, "")
    assert str(file) in err
    assert len(err.splitlines()) == 1


def test_too_few_to_choose_from_have_a_status_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(tmp_path / "recording.gz")
    status, out, err = run(capsys, "--recording", str(file), "best", "-n", "8")
    assert (status, out) == (3, "")
    assert err == "8 are requested, and there are 6 to choose from\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-n", "x"), "give the number of GPUs to choose"),
        (("-n", "9"), "this node has 8 GPUs"),
        (("-n", "1", "--must", "0,1"), "must names 2 GPUs"),
        (("-n", "1", "--candidates", ""), "candidates lists no GPU"),
        (("-n", "1", "--candidates", "GPU-nope"), "there is no GPU 'GPU-nope' here"),
    ],
)
def test_a_wrong_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    file = recording(tmp_path / "recording.gz")
    status, out, err = run(capsys, "--recording", str(file), "best", *words)
    assert (status, out) == (2, "")
    assert why in err


# -- of a daemon


async def test_a_daemon_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        status, text, _ = await ask(capsys, "--url", url)
        assert status == 0
        assert "ml/train-0" in text
        _, made, _ = await ask(capsys, "--json", "--url", f"{url}/")
        assert json.loads(made)["free"] == "fc"
        _, graph, _ = await ask(capsys, "--dot", "--url", url)
        assert graph.startswith("graph topology {")
        status, best, why = await ask(capsys, "best", "-n", "2", "--must", "5", "--url", url)
        assert status == 0
        assert best == f"4\t{uuid_of(4)}\n5\t{uuid_of(5)}\n"
        assert "link score" in why
        status, _, why = await ask(capsys, "best", "-n", "7", "--url", url)
        assert (status, why) == (3, "7 are requested, and there are 6 to choose from\n")


async def test_without_a_word_the_daemon_of_this_machine_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(command, "LOCAL", url)
        status, out, err = await ask(capsys, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["free"] == "fc"


async def test_what_a_daemon_refuses_is_reported_in_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        said = await ask(capsys, "--url", url, "best", "-n", "1", "--must", "8")
    assert said == (
        2,
        "",
        "podgpu: there is no GPU '8' here: name some of GPU 0-7 by index or uuid\n",
    )


async def unknown(_: HttpRequest) -> HttpResponse:
    return HttpResponse(b"no source tells how the GPUs are joined\n", status=404)


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ({}, "answers 404: not found"),
        ({"/topology/best": (unknown, "")}, "answers 404: no source tells"),
        ({"/topology/best": (says("<html>"), "")}, "the response is not from podgpu"),
        ({"/topology/best": (says(b"\xff"), "")}, "the response is not from podgpu"),
        ({"/topology/best": (says("[]"), "")}, "the response is not from podgpu"),
        ({"/topology/best": (says('{"gpus": [1]}'), "")}, "the response is not from podgpu"),
    ],
)
async def test_answers_that_are_no_good(
    capsys: pytest.CaptureFixture[str], pages: Pages, why: str
) -> None:
    async with daemon(pages) as port:
        url = f"http://127.0.0.1:{port}"
        status, out, err = await ask(capsys, "best", "--url", url, "-n", "1")
    assert (status, out) == (1, "")
    assert url in err
    assert why in err


async def test_an_answer_without_an_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_client, "_MAX_BYTES", 100)
    async with daemon() as port:
        url = f"http://127.0.0.1:{port}"
        status, _, err = await ask(capsys, "--url", url)
    assert status == 1
    assert "larger than 100 bytes" in err


@pytest.fixture
def deaf() -> str:
    """The URL of a port where nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{reserved.getsockname()[1]}"


def test_a_daemon_that_was_named_and_is_not_there(
    capsys: pytest.CaptureFixture[str], deaf: str
) -> None:
    status, out, err = run(capsys, "--url", deaf)
    assert (status, out) == (1, "")
    assert err == f"podgpu: nothing answers at {deaf}: Connection refused\n"


@pytest.mark.parametrize(
    "url",
    ["localhost:9400", "ftp://x", "http://", "http://x:port", "http://[::1", "http://x/?a=b", ""],
)
def test_what_is_no_address(capsys: pytest.CaptureFixture[str], url: str) -> None:
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
def test_no_password_in_an_address(capsys: pytest.CaptureFixture[str], url: str) -> None:
    status, out, err = run(capsys, "--url", url)
    assert (status, out) == (2, "")
    assert "do not put a user name or password in the address" in err
    assert "give --user, and --password-file or the variable PODGPU_PASSWORD" in err
    assert "sec" not in err


# -- of this machine


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a configuration."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_this_machine_s_driver_is_read(
    fake_nvml: FakeNvml, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.set(dgx1())
    status, out, _ = run(capsys, "--local")
    assert status == 0
    rows = [line.split() for line in out.splitlines()[1:9]]
    assert rows[0][:9] == ["GPU0", "X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"]
    assert rows[7][:9] == ["GPU7", "SYS", "SYS", "SYS", "NV1", "NV2", "NV1", "NV2", "X"]
    status, out, _ = run(capsys, "best", "-n", "2", "--local", "--json")
    assert (status, json.loads(out)["among"]) == (0, "all")


def test_without_a_daemon_the_driver_is_read(
    fake_nvml: FakeNvml,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    deaf: str,
) -> None:
    monkeypatch.setattr(command, "LOCAL", deaf)
    fake_nvml.set(hgx(4))
    status, out, err = run(capsys, "--json")
    assert status == 0
    assert f"nothing answers at {deaf}: Connection refused; reading NVML" in err
    assert json.loads(out)["nvlink"] == [{"kind": "switch", "mask": "f"}]
    assert "free" not in json.loads(out), "nobody tells who holds what"


def test_a_configuration_s_sources_report_of_holders(
    fake_nvml: FakeNvml, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.set(hgx(2))
    held = {"namespace": "ml", "name": "train-0", "container": "main", "gpu_list": [GPU[1]]}
    (elsewhere / "podlist.json").write_text(json.dumps([held]))
    (elsewhere / "podgpu.yaml").write_text(
        "sources:\n"
        "  gpus: {kind: nvml}\n"
        f"  holders: {{kind: podlist, path: {elsewhere / 'podlist.json'}}}\n"
        "  more: {kind: pods}\n"
        "sinks:\n"
        "  metrics: {kind: prometheus, listen: ':1'}\n"
    )
    status, out, err = run(capsys, "--local", "--json")
    assert (status, err) == (0, "podgpu: using podgpu.yaml\n")
    assert json.loads(out)["free"] == "1"


def test_a_machine_without_a_driver(
    fake_nvml: FakeNvml, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.set(Scenario(init_error=9))
    status, out, err = run(capsys, "--local")
    assert (status, out) == (1, "")
    assert "the NVIDIA kernel driver is not loaded" in err
    assert len(err.splitlines()) == 2, "which configuration, and why not"


def test_a_driver_that_hangs(
    fake_nvml: FakeNvml,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_topology, "SECONDS", 0.2)
    fake_nvml.set(Scenario(gpus=hgx(1).gpus, block={"nvmlInitWithFlags": 60.0}))
    status, _, err = run(capsys, "--local")
    assert status == 1
    assert "has not responded for 0.2 s" in err


def test_only_sources_that_read_run_beside_a_daemon() -> None:
    assert {"nri", "pods", "replay"}.isdisjoint(local_topology.READING)


def test_the_recording_has_a_topology_in_it() -> None:
    assert isinstance(EVENTS[2][1], TopologyRead)
