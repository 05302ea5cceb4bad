"""The commands in the documentation exist, and those of the README and a tutorial are run."""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from podgpu.cli.commands import command_parser
from tests.docs.pages import ALL, DOCS, README, ROOT, blocks, name, text_of
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.nodes import h100s

TUTORIAL = DOCS / "tutorials" / "without-kubernetes.md"

_SHELL = ("", "sh", "bash", "console")
_SYNOPSIS = re.compile(r"[\[\]…]|\.\.\.")
_OWN_PARSERS = {"dcgm-exporter"}


def commands(page: Path) -> list[str]:
    """Return the commands of a page, one line each, without prompts and comments."""
    found = []
    for language in _SHELL:
        for block in blocks(page, language):
            for line in block.replace("\\\n", " ").splitlines():
                text = re.sub(r"\s+#.*$", "", line.removeprefix("$ ")).strip()
                if text and not text.startswith("#"):
                    found.append(text)
    return found


def parts(page: Path, program: str) -> list[list[str]]:
    """Return the words of each command of a program, also after `--` of kubectl."""
    made = []
    for command in commands(page):
        for part in re.split(r"\s(?:\||&&|\|\||>|>>|2>)\s", command):
            try:
                words = shlex.split(part)
            except ValueError:
                continue
            if "--" in words:
                words = words[words.index("--") + 1 :]
            if words[:1] == [program]:
                made.append(words)
    return made


@pytest.mark.parametrize("page", ALL, ids=name)
def test_podgpu_accepts_its_documented_commands(page: Path) -> None:
    refused = []
    for words in parts(page, "podgpu"):
        text = shlex.join(words)
        if _SYNOPSIS.search(text) or len(words) < 2 or words[1] in _OWN_PARSERS:
            continue
        try:
            command_parser().parse_args(words[1:])
        except SystemExit as error:
            # --version and --help end with 0.
            if error.code:
                refused.append(text)
    assert refused == []


def test_documented_commands_are_found() -> None:
    assert sum(len(parts(page, "podgpu")) for page in ALL) > 35


@pytest.mark.parametrize("page", ALL, ids=name)
def test_documented_targets_of_make_exist(page: Path) -> None:
    rules = re.findall(r"^([\w%-]+):(?!=)", text_of(ROOT / "Makefile"), re.MULTILINE)
    patterns = [re.compile(rule.replace("%", r"[\w-]+")) for rule in rules]
    inline = re.findall(r"`make ([\w -]+)`", text_of(page))
    used = [words[1:] for words in parts(page, "make")] + [text.split() for text in inline]
    targets = {word for words in used for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)}
    missing = {each for each in targets if not any(one.fullmatch(each) for one in patterns)}
    assert missing - {"release-"} == set()


@pytest.mark.parametrize("page", ALL, ids=name)
def test_documented_modules_exist(page: Path) -> None:
    named = re.findall(r"python -m ((?:tests|deploy)[\w.]*)", text_of(page))
    for module in named:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


# Run by this process's interpreter, in place of the program that a user has installed.


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for the search path, with the program `podgpu`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "podgpu"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m podgpu "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return folder


def environment(programs: Path, **more: str) -> Mapping[str, str]:
    home = {"HOME": str(programs.parent), "XDG_STATE_HOME": str(programs.parent / "state")}
    search = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **home, **search, **more}


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
    return port


def run(command: str, env: Mapping[str, str], folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


class Daemon:
    """A daemon in the background, and its output."""

    def __init__(self, command: str, env: Mapping[str, str], folder: Path) -> None:
        self._log = folder / "daemon.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                shlex.split(command), env=env, cwd=folder, stdout=log, stderr=log
            )

    def wait_for(self, url: str, text: str) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - loopback
                    if text in response.read().decode():
                        return
            except OSError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"{url} has no {text}:\n{self._log.read_text()[-3000:]}")

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", [README, TUTORIAL], ids=name)
def test_the_commands_about_the_demo_work(page: Path, programs: Path, tmp_path: Path) -> None:
    """The demo listens on another port than 9400, which may be in use here."""
    port = free_port()
    env = environment(programs)
    demo = Daemon(f"podgpu demo --listen 127.0.0.1:{port}", env, tmp_path)
    try:
        demo.wait_for(f"http://127.0.0.1:{port}/metrics", "podgpu_device_holder_info{")
        ran = []
        for command in commands(page):
            text = command.replace("localhost:9400", f"127.0.0.1:{port}")
            if text.startswith("podgpu top"):
                text += f" --url http://127.0.0.1:{port}"
            # Other daemons may run on this machine.
            if text.startswith("podgpu usage"):
                text += f" --ledger {tmp_path}/state/podgpu/demo-{port}.db"
            if text.startswith(("podgpu top --once", "podgpu usage --by pod", "podgpu --", "curl")):
                assert run(text, env, tmp_path).strip()
                ran.append(text.split()[0])
        assert "curl" in ran
        if page == TUTORIAL:
            assert ran.count("podgpu") == 4, ran
    finally:
        assert demo.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_tutorial_s_configuration_works_on_a_machine_with_gpus(
    programs: Path, tmp_path: Path
) -> None:
    fake = FakeNvml(h100s(2), tmp_path)
    env = environment(programs, **fake.env())
    port = free_port()
    (block,) = (text for text in blocks(TUTORIAL, "yaml") if text.startswith("sources:"))
    block = block.replace(":9400", f"127.0.0.1:{port}")
    block = block.replace("/var/tmp/", f"{tmp_path}/").replace("5s}", "1s, usage_interval: 1s}")
    (tmp_path / "podgpu.yaml").write_text(block, encoding="utf-8")
    assert {"podgpu check", "podgpu run", "podgpu usage --by device"} <= set(commands(TUTORIAL))
    run("podgpu check", env, tmp_path)
    daemon = Daemon("podgpu run", env, tmp_path)
    try:
        daemon.wait_for(f"http://127.0.0.1:{port}/metrics", "podgpu_device_busy_seconds_total{")
        assert "2 GPUs" in run(f"podgpu top --once --url http://127.0.0.1:{port}", env, tmp_path)
    finally:
        assert daemon.stop() == 0
    assert "by device" in run("podgpu usage --by device -c podgpu.yaml", env, tmp_path)
