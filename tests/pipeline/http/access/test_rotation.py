"""Tests of changes of certificates, CAs and the web configuration while podgpu is scraped."""

import asyncio
import errno
import logging
import os
import ssl
import threading
from pathlib import Path

import pytest

from config.errors import ConfigError
from pipeline.http.access.web_config_reader import WebConfigReader
from tests.pipeline.http.access.tls_clients import client_context
from tests.support.http import Client
from tests.support.web import (
    Web,
    always_check_files,
    authority,
    basic,
    certificate,
    hashed,
    pem,
)

TURNS = 6
"""How often all files change in one test."""

REQUIRE = "client_auth_type: RequireAndVerifyClientCert"
CA = "client_ca_file: ca.crt"
FIRST = certificate("server", "127.0.0.1")
SECOND = certificate("server", "127.0.0.1", serial=2)


@pytest.fixture(autouse=True)
def read_files_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    always_check_files(monkeypatch)


async def served_certificate(web: Web) -> bytes:
    """Return the certificate that a new connection gets, in PEM format."""
    client = await web.connect(client_context())
    found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert await client.get("/metrics") == (200, "page")
    return ssl.DER_cert_to_PEM_cert(found).encode()


def leaf_of(chain: bytes) -> bytes:
    return chain[: chain.index(b"-----END CERTIFICATE-----")] + b"-----END CERTIFICATE-----\n"


def replace(path: Path, text: bytes) -> None:
    other = path.with_name(path.name + ".new")
    other.write_bytes(text)
    other.rename(path)


async def test_a_new_connection_gets_the_new_certificate(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    web.secure()
    async with web.serving():
        assert await served_certificate(web) == leaf_of(pem(FIRST)[0])
        web.pair(SECOND)
        assert await served_certificate(web) == leaf_of(pem(SECOND)[0])
    assert [r.getMessage() for r in caplog.records if "in force" in r.getMessage()] == [
        f"{web.path}: the new configuration is in force"
    ]


async def test_an_older_connection_is_closed_after_one_more_response(web: Web) -> None:
    web.secure()
    async with web.serving():
        older = await web.connect(client_context())
        assert await older.get("/metrics") == (200, "page")
        assert await older.get("/metrics") == (200, "page")
        web.pair(SECOND)
        await served_certificate(web)
        older.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = await older.answer()
        assert (status, headers["connection"], body) == (200, "close", b"page")
        assert await older.ended()


async def test_an_incomplete_new_pair_is_logged_once_and_the_old_one_stays(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    web.secure()
    async with web.serving():
        (web.folder / "tls.crt").write_bytes(pem(SECOND)[0])
        await web.access.current()
        assert not caplog.records  # the files may be in the middle of a change
        for _ in range(3):
            assert await served_certificate(web) == leaf_of(pem(FIRST)[0])
        (record,) = caplog.records
        assert record.getMessage() == (
            f"{web.path}: tls_server_config.key_file: is not the key of the certificate"
            "\nthe previous web configuration stays in force"
        )
        (web.folder / "tls.key").write_bytes(pem(SECOND)[1])
        assert await served_certificate(web) == leaf_of(pem(SECOND)[0])
        assert len(caplog.records) == 1


async def test_a_file_that_is_restored_is_reported_as_valid_again(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    web.secure()
    good = web.path.read_text()
    async with web.serving():
        caplog.clear()
        web.write("nonsense")
        for _ in range(3):
            await served_certificate(web)
        web.write(*good.splitlines())
        await served_certificate(web)
        await served_certificate(web)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith(f"{web.path}:1:1: expected a mapping")
    assert messages[1] == f"{web.path} is valid again"


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
async def test_no_scrape_fails_while_certificates_and_cas_change(kept: bool, web: Web) -> None:
    """Certificate, key and CA are replaced one after the other, several times."""
    friend = certificate("clients", "prometheus.example.org")
    web.trust("clients")
    web.secure(REQUIRE, CA)
    both = authority("clients").cert_pem.bytes() + authority("strangers").cert_pem.bytes()
    authorities = [authority("clients").cert_pem.bytes(), both]
    stop = asyncio.Event()
    scraped = 0

    async def scrape() -> None:
        nonlocal scraped
        client: Client | None = None
        while not stop.is_set():
            if client is None or not kept:
                client = await web.connect(client_context(friend))
            client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            status, headers, body = await client.answer()
            assert (status, body) == (200, b"page")
            scraped += 1
            if not kept or headers.get("connection") == "close":
                client.writer.close()
                client = None

    async def change() -> None:
        for turn in range(TURNS):
            chain, key = pem((FIRST, SECOND)[turn % 2])
            for name, text in (
                ("tls.crt", chain), ("tls.key", key), ("ca.crt", authorities[turn % 2])
            ):  # fmt: skip
                await asyncio.to_thread(replace, web.folder / name, text)
                seen = scraped
                while scraped < seen + 2:
                    await asyncio.sleep(0)
        stop.set()

    async with web.serving():
        await asyncio.gather(change(), *(scrape() for _ in range(4)))
    assert scraped >= TURNS * 3 * 2


async def test_certificates_of_a_removed_ca_are_refused(web: Web) -> None:
    friend, stranger = (certificate(ca, "p.example.org") for ca in ("clients", "strangers"))
    web.trust("clients")
    web.secure(REQUIRE, CA)
    async with web.serving():
        assert await web.scrape(client_context(friend)) == (200, "page")
        web.trust("strangers")
        assert await web.scrape(client_context(stranger)) == (200, "page")
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await web.scrape(client_context(friend))


async def test_tls_can_be_turned_on_and_off_on_the_same_port(web: Web) -> None:
    web.write("{}")
    async with web.serving():
        plain = await web.connect()
        assert await plain.get("/metrics") == (200, "page")
        web.secure()
        assert await web.scrape(client_context()) == (200, "page")
        plain.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await plain.answer())[1]["connection"] == "close"
        assert await plain.ended()
        web.write("{}")
        assert await web.scrape() == (200, "page")


async def test_a_change_of_users_applies_to_the_next_request(web: Web) -> None:
    web.write("basic_auth_users:", f"  a: {hashed('one')}")
    async with web.serving():
        client = await web.connect()
        assert (await client.get("/metrics", basic("a", "one")))[0] == 200
        web.write("basic_auth_users:", f"  a: {hashed('two')}")
        assert (await client.get("/metrics", basic("a", "one")))[0] == 401
        assert (await client.get("/metrics", basic("a", "two")))[0] == 200
        web.write("basic_auth_users:", f"  b: {hashed('two')}")
        assert (await client.get("/metrics", basic("a", "two")))[0] == 401


async def test_a_removed_web_config_stays_in_force(web: Web) -> None:
    web.write("basic_auth_users:", f"  a: {hashed('one')}")
    async with web.serving():
        web.path.unlink()
        for _ in range(3):
            assert (await web.scrape())[0] == 401
            assert (await web.scrape(None, basic("a", "one")))[0] == 200


async def test_an_update_of_a_mounted_secret_is_followed_through_its_links(web: Web) -> None:
    """Kubernetes swaps one link, and all files change with it."""
    for name, leaf in (("one", FIRST), ("two", SECOND)):
        (web.folder / name).mkdir()
        for file, text in zip(("tls.crt", "tls.key"), pem(leaf), strict=True):
            (web.folder / name / file).write_bytes(text)
    (web.folder / "..data").symlink_to("one")
    for file in ("tls.crt", "tls.key"):
        (web.folder / file).symlink_to(f"..data/{file}")
    web.secure()
    async with web.serving():
        assert await served_certificate(web) == leaf_of(pem(FIRST)[0])
        (web.folder / "..new").symlink_to("two")
        (web.folder / "..new").rename(web.folder / "..data")
        assert await served_certificate(web) == leaf_of(pem(SECOND)[0])


async def test_a_disk_that_does_not_respond_is_waited_for_once(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.http.access.access_checker._READ_TIMEOUT", 0.2)
    web.secure()
    responds = threading.Event()
    async with web.serving():

        def hangs(reader: WebConfigReader) -> None:
            responds.wait(10)

        monkeypatch.setattr(WebConfigReader, "reload", hangs)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            for _ in range(100):
                await web.access.current()
            assert loop.time() - started < 10
            assert await web.scrape(client_context()) == (200, "page")
        finally:
            responds.set()


def test_a_reload_without_changes_makes_no_new_context(web: Web) -> None:
    web.secure()
    reader = WebConfigReader(web.path)
    first = reader.reload()
    assert first is not None
    assert reader.reload() is None
    web.secure("min_version: TLS12")
    second = reader.reload()
    assert second is not None
    assert second.context is not first.context
    with web.path.open("a") as file:
        file.write(f"basic_auth_users:\n  a: {hashed('one')}\n")
    third = reader.reload()
    assert third is not None
    assert third.context is second.context
    (web.folder / "tls.key").write_text("nonsense")
    for _ in range(2):
        with pytest.raises(ConfigError):
            reader.reload()
    web.pair(FIRST)
    assert reader.reload() is None


@pytest.mark.parametrize(("left", "key"), [(0, "cert_file"), (1, "key_file"), (2, "client_ca")])
def test_r7_without_descriptors_a_reload_fails_with_a_message_and_can_be_retried(
    left: int, key: str, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.trust("clients")
    web.secure("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: ca.crt")
    reader, original, calls = WebConfigReader(web.path), os.memfd_create, 0

    def limited(name: str, flags: int) -> int:
        nonlocal calls
        calls += 1
        if calls > left:
            raise OSError(errno.EMFILE, "Too many open files")
        return original(name, flags)

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", limited)
        with pytest.raises(ConfigError, match=rf"{key}[^:]*: cannot be .*: Too many open files"):
            reader.reload()
    assert reader.reload() is not None
