"""Credential files are read rarely, and a slow disk blocks only one thread."""

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
from tests.sinks.otlp.transport.sending import CertificateFiles, ManualClock
from tests.support.web import certificate


async def test_a_slow_disk_blocks_one_thread_and_credentials_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, released = tmp_path / "token", threading.Event()
    token.write_text("word")
    calls = 0

    def read(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        released.wait(20)
        return read_file(*args)

    monkeypatch.setattr(credentials, "read_file", read)
    monkeypatch.setattr(credentials, "_READ_TIMEOUT", 0.05)
    credentials_ = Credentials(None, token, ManualClock())
    for _ in range(3):
        with pytest.raises(CredentialsError, match=f"{token}: could not be read within 0.05 s"):
            await credentials_.get()
    assert calls == 1
    released.set()
    async with asyncio.timeout(10):
        while True:
            try:
                found = await credentials_.get()
                break
            except CredentialsError:
                continue
    assert found.token == token.read_text()
    assert calls == 1


async def test_without_files_nothing_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    credentials_ = Credentials(TlsOptions(), None, clock)
    first = await credentials_.get()
    assert first.tls is not None
    clock.advance()
    assert await credentials_.get() is first
    assert not credentials_.files


async def test_rewritten_files_with_the_same_content_keep_the_tls_context(tmp_path: Path) -> None:
    files, clock = CertificateFiles(tmp_path), ManualClock()
    leaf = certificate("clients", "podgpu")
    files.trust("server")
    files.write_certificate(leaf)
    credentials_ = Credentials(files.options(client=True), None, clock)
    first = await credentials_.get()
    files.write_certificate(leaf)
    clock.advance()
    assert (await credentials_.get()).tls is first.tls
    assert credentials_.files


async def test_an_invalid_token_is_an_error(tmp_path: Path) -> None:
    token = tmp_path / "token"
    for content in ("", " \n", "a b\nc", "ä", "a\x00b"):
        token.write_text(content)
        with pytest.raises(CredentialsError, match="only the token, on one line"):
            await Credentials(None, token, ManualClock()).get()


async def test_a_too_large_file_or_a_folder_is_an_error(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(2 << 20))
    for path in (large, tmp_path):
        with pytest.raises(CredentialsError, match=f"^{path}: "):
            await Credentials(None, path, ManualClock()).get()


async def test_reload_reads_files_even_with_an_unchanged_modification_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    credentials_ = Credentials(None, token, ManualClock())
    first = await credentials_.get()
    before = token.stat()
    token.write_text("new")
    os.utime(token, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await credentials_.get() is first
    assert (await credentials_.get(reload=True)).token == token.read_text()


async def test_secrets_are_not_in_repr(tmp_path: Path) -> None:
    files, token = CertificateFiles(tmp_path), tmp_path / "token"
    token.write_text("hidden")
    files.trust("server")
    files.write_certificate(certificate("clients", "podgpu"))
    credentials_ = await Credentials(files.options(client=True), token, ManualClock()).get()
    assert "hidden" not in repr(credentials_)
    assert "PRIVATE" not in repr(credentials_)


async def test_an_error_names_the_environment_variable_of_the_file(tmp_path: Path) -> None:
    names = {"ca": "the file of CERTIFICATE", "cert": "the file of CERT", "key": "the file of KEY"}
    files = CertificateFiles(tmp_path)
    credentials_ = Credentials(files.options(client=True), None, ManualClock(), names=names)

    async def message() -> str:
        with pytest.raises(CredentialsError) as caught:
            await credentials_.get(reload=True)
        return str(caught.value)

    assert await message() == (
        f"{files.ca}: no such file; check that the file of CERTIFICATE is mounted and readable"
    )
    files.trust("server")
    files.write_certificate(certificate("clients", "podgpu"))
    files.key.write_text("nothing")
    assert (await message()).endswith("; check the file of KEY")
