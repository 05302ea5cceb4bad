"""How files are read: seldom, and so that one that hangs holds up a single thread."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.files.bounded_read import read_file
from sinks.otlp.options import TlsOptions
from sinks.otlp.transport import credentials
from sinks.otlp.transport.credentials import Credentials, CredentialsError
from tests.sinks.otlp.transport.sending import Files, TurnedClock
from tests.support.web import certificate


async def test_a_disk_that_hangs_costs_one_thread_and_data_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, hangs = tmp_path / "token", threading.Event()
    token.write_text("word")
    calls = 0

    def read(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        hangs.wait(20)
        return read_file(*args)

    monkeypatch.setattr(credentials, "read_file", read)
    monkeypatch.setattr(credentials, "_READ_TIMEOUT", 0.05)
    held = Credentials(None, token, TurnedClock())
    for _ in range(3):
        with pytest.raises(CredentialsError, match=f"{token}: could not be read within 0.05 s"):
            await held.get()
    assert calls == 1
    hangs.set()
    async with asyncio.timeout(10):
        while True:
            try:
                found = await held.get()
                break
            except CredentialsError:
                continue
    assert found.token == token.read_text()
    assert calls == 1


async def test_without_files_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TurnedClock()
    held = Credentials(TlsOptions(), None, clock)
    first = await held.get()
    assert first.tls is not None
    clock.turn()
    assert await held.get() is first
    assert not held.files


async def test_files_that_say_the_same_are_the_same_connection(tmp_path: Path) -> None:
    files, clock = Files(tmp_path), TurnedClock()
    leaf = certificate("clients", "podgpu")
    files.trust("server")
    files.show(leaf)
    held = Credentials(files.options(client=True), None, clock)
    first = await held.get()
    files.show(leaf)
    clock.turn()
    assert (await held.get()).tls is first.tls
    assert held.files


async def test_a_token_of_others_letters(tmp_path: Path) -> None:
    token = tmp_path / "token"
    for content in ("", " \n", "a b\nc", "ä", "a\x00b"):
        token.write_text(content)
        with pytest.raises(CredentialsError, match="only the token, on one line"):
            await Credentials(None, token, TurnedClock()).get()


async def test_a_file_that_is_too_large_or_none(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(2 << 20))
    for path in (large, tmp_path):
        with pytest.raises(CredentialsError, match=f"^{path}: "):
            await Credentials(None, path, TurnedClock()).get()


async def test_what_was_refused_is_read_again_whatever_its_stamp_says(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    held = Credentials(None, token, TurnedClock())
    first = await held.get()
    before = token.stat()
    token.write_text("new")
    os.utime(token, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await held.get() is first
    assert (await held.get(reload=True)).token == token.read_text()


async def test_secrets_are_not_shown(tmp_path: Path) -> None:
    files, token = Files(tmp_path), tmp_path / "token"
    token.write_text("hidden")
    files.trust("server")
    files.show(certificate("clients", "podgpu"))
    held = await Credentials(files.options(client=True), token, TurnedClock()).get()
    assert "hidden" not in repr(held)
    assert "PRIVATE" not in repr(held)


async def test_a_file_that_a_variable_names_is_reported_by_the_variable(tmp_path: Path) -> None:
    names = {"ca": "the file of CERTIFICATE", "cert": "the file of CERT", "key": "the file of KEY"}
    files = Files(tmp_path)
    held = Credentials(files.options(client=True), None, TurnedClock(), names=names)  # type: ignore[arg-type]

    async def given_out() -> str:
        with pytest.raises(CredentialsError) as caught:
            await held.get(reload=True)
        return str(caught.value)

    assert await given_out() == (
        f"{files.ca}: no such file; check that the file of CERTIFICATE is mounted and readable"
    )
    files.trust("server")
    files.show(certificate("clients", "podgpu"))
    files.key.write_text("nothing")
    assert (await given_out()).endswith("; check the file of KEY")
