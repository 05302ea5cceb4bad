"""`http.web_config` as the doctor sees it, and podgpu known by its certificate."""

import datetime
from pathlib import Path

import pytest
import trustme

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.context import DoctorContext
from podgpu.doctor import listen_ports
from podgpu.doctor import web_config as webs
from podgpu.doctor.web_config import read_identity
from tests.podgpu.doctor.support import context, is_bad, of, write
from tests.support.web import Web, authority, certificate, hashed, pem

NOW = datetime.datetime.now(datetime.UTC)
NODE = "node-<1>"
"""What `tests.support.http.listeners` calls it."""

DAY = datetime.timedelta(days=1)


def config(folder: Path, leaf: trustme.LeafCert, *more: str) -> Path:
    """Write a web config with a certificate; `more` are lines of its TLS part."""
    chain, key = pem(leaf)
    write(folder / "tls.crt", chain.decode())
    write(folder / "tls.key", key.decode())
    lines = ["tls_server_config:", "  cert_file: tls.crt", "  key_file: tls.key"]
    return write(folder / "web.yml", "\n".join([*lines, *(f"  {each}" for each in more), ""]))


def looking(folder: Path, web_config: Path, text: str = "") -> DoctorContext:
    return context(folder / "ctx", f"http: {{web_config: {web_config}}}\n{text}")


async def looked(folder: Path, web_config: Path) -> Finding:
    return of(await webs.examine(looking(folder, web_config)), "http.web_config")


async def test_without_one_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert await webs.examine(context(tmp_path)) == []


async def test_a_good_one_reports_how_long_its_certificate_holds(tmp_path: Path) -> None:
    leaf = authority("server").issue_cert("localhost", not_after=NOW + 10.5 * DAY)
    given_out = await looked(tmp_path, config(tmp_path, leaf))
    assert (given_out.verdict, given_out.observed) == (
        Verdict.OK,
        "valid; its certificate is valid for 10 d",
    )


async def test_passwords_alone_are_well(tmp_path: Path) -> None:
    path = write(tmp_path / "web.yml", f"basic_auth_users: {{prom: '{hashed('x')}'}}\n")
    assert (await looked(tmp_path, path)).observed == "valid; without TLS"


TIMES = [
    (NOW - 9 * DAY, NOW - 3.5 * DAY, "has expired 3 d ago", "renew the certificate"),
    (NOW + 3.5 * DAY, NOW + 9 * DAY, "becomes valid in 3 d", "the node's clock"),
]


@pytest.mark.parametrize("row", TIMES, ids=["expired", "not yet"])
@pytest.mark.parametrize("client", ["NoClientCert", "RequireAndVerifyClientCert"])
async def test_a_certificate_that_does_not_hold_now(
    tmp_path: Path, row: tuple[datetime.datetime, datetime.datetime, str, str], client: str
) -> None:
    begins, ends, saw, repair = row
    leaf = authority("server").issue_cert("localhost", not_before=begins, not_after=ends)
    more = () if client == "NoClientCert" else ("client_ca_file: tls.crt",)
    path = config(tmp_path, leaf, f"client_auth_type: {client}", *more)
    is_bad(await looked(tmp_path, path), "failure", saw, repair)


SPOILERS = [
    ("web.yml", None, "there is no such file"),
    ("web.yml", "tls_server_config: [", "not valid YAML"),
    ("tls.crt", None, "tls.crt: no such file"),
    ("tls.crt", "nonsense", "cert_file"),
    ("tls.key", None, "tls.key: no such file"),
    ("tls.key", "nonsense", "key_file"),
]


@pytest.mark.parametrize(("name", "text", "saw"), SPOILERS)
async def test_what_podgpu_would_not_start_with(
    tmp_path: Path, name: str, text: str | None, saw: str
) -> None:
    path = config(tmp_path, certificate("server", "localhost"))
    (tmp_path / name).unlink()
    if text is not None:
        write(tmp_path / name, text)
    given_out = await looked(tmp_path, path)
    is_bad(given_out, "failure", saw, "podgpu check reports the same")


@pytest.mark.parametrize("versions", [("TLS12", "TLS12"), ("TLS12", "TLS13"), ("TLS13", "TLS13")])
def test_a_certificate_is_read_whatever_is_spoken(
    tmp_path: Path, versions: tuple[str, str]
) -> None:
    lines = [f"min_version: {versions[0]}", f"max_version: {versions[1]}"]
    shown = read_identity(config(tmp_path, certificate("server", "localhost"), *lines))
    assert shown is not None
    assert shown.not_before is not None
    assert not shown.requires_client_certificate


# -- http.port behind client certificates ---------------------------------------------------------

TYPES = ["RequireAndVerifyClientCert", "VerifyClientCertIfGiven", "NoClientCert"]


def secured(folder: Path, kind: str, leaf: trustme.LeafCert) -> Web:
    folder.mkdir()
    web = Web(folder)
    web.pair(leaf)
    web.trust("client")
    web.secure(
        f"client_auth_type: {kind}",
        *(() if kind == "NoClientCert" else ("client_ca_file: ca.crt",)),
    )
    return web


async def taken(folder: Path, running: Web, looked_at: Web) -> Finding:
    """Look at the port of one podgpu by the web config of another, or its own."""
    async with running.serving() as web:
        text = f'sinks: {{m: {{kind: prometheus, listen: "127.0.0.1:{web.port}"}}}}\n'
        ctx = looking(folder, looked_at.path, f"node: '{NODE}'\n{text}")
        return of(await listen_ports.examine(ctx), "http.port")


@pytest.mark.parametrize("kind", TYPES)
async def test_podgpu_is_known_though_it_wants_a_certificate(tmp_path: Path, kind: str) -> None:
    web = secured(tmp_path / "web", kind, certificate("server", "127.0.0.1"))
    given_out = await taken(tmp_path, web, web)
    assert given_out.verdict is Verdict.OK, given_out
    assert "podgpu" in given_out.observed


async def test_another_server_that_wants_a_certificate_is_none_of_podgpu_s(tmp_path: Path) -> None:
    kind = TYPES[0]
    one = secured(tmp_path / "one", kind, certificate("server", "127.0.0.1"))
    other = secured(tmp_path / "other", kind, certificate("server", "127.0.0.1", serial=2))
    is_bad(
        await taken(tmp_path, one, other),
        "failure",
        "requires a client certificate",
        "another listen",
    )


async def test_who_shows_none_before_it_is_shown_one_is_not_judged(tmp_path: Path) -> None:
    """So it is with TLS 1.2, where the hands are not shaken before."""
    web = secured(tmp_path / "web", TYPES[0], certificate("server", "127.0.0.1"))
    web.secure(f"client_auth_type: {TYPES[0]}", "client_ca_file: ca.crt", "max_version: TLS12")
    given_out = await taken(tmp_path, web, web)
    assert given_out.verdict is Verdict.SKIPPED, given_out
    assert "cannot be identified" in given_out.observed
