"""The check `http.web_config`, and how podgpu is identified by its certificate."""

import datetime
from functools import partial
from pathlib import Path

import pytest
import trustme

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from pipeline.diagnostics.context import DoctorContext
from podgpu.doctor import listen_ports
from podgpu.doctor import web_config as webs
from podgpu.doctor.web_config import read_identity
from tests.podgpu.doctor.support import context, is_bad, of, write
from tests.support.web import Web, authority, certificate, hashed, pem

NOW = datetime.datetime.now(datetime.UTC)
NODE = "node-<1>"
"""The node name that `tests.support.http.listeners` uses."""

DAY = datetime.timedelta(days=1)


def config(folder: Path, leaf: trustme.LeafCert, *more: str) -> Path:
    """Write a web configuration file with a certificate; `more` are lines of its TLS part."""
    chain, key = pem(leaf)
    write(folder / "tls.crt", chain.decode())
    write(folder / "tls.key", key.decode())
    lines = ["tls_server_config:", "  cert_file: tls.crt", "  key_file: tls.key"]
    return write(folder / "web.yml", "\n".join([*lines, *(f"  {each}" for each in more), ""]))


def context_with(folder: Path, web_config: Path, text: str = "") -> DoctorContext:
    return context(folder / "ctx", f"http: {{web_config: {web_config}}}\n{text}")


async def check_web_config(folder: Path, web_config: Path) -> Finding:
    ctx = context_with(folder, web_config)
    return of(await findings_of(partial(webs.examine, ctx)), "http.web_config")


def test_without_a_web_config_there_is_no_finding(tmp_path: Path) -> None:
    assert webs.examine(context(tmp_path)) == []


async def test_a_valid_web_config_reports_how_long_its_certificate_is_valid(tmp_path: Path) -> None:
    leaf = authority("server").issue_cert("localhost", not_after=NOW + 10.5 * DAY)
    finding = await check_web_config(tmp_path, config(tmp_path, leaf))
    assert (finding.verdict, finding.observed) == (
        Verdict.OK,
        "valid; its certificate is valid for 10 d",
    )


async def test_passwords_without_tls_are_ok(tmp_path: Path) -> None:
    path = write(tmp_path / "web.yml", f"basic_auth_users: {{prom: '{hashed('x')}'}}\n")
    assert (await check_web_config(tmp_path, path)).observed == "valid; without TLS"


VALIDITY = [
    (NOW - 9 * DAY, NOW - 3.5 * DAY, "has expired 3 d ago", "renew the certificate"),
    (NOW + 3.5 * DAY, NOW + 9 * DAY, "becomes valid in 3 d", "the node's clock"),
]


@pytest.mark.parametrize("row", VALIDITY, ids=["expired", "not yet"])
@pytest.mark.parametrize("client", ["NoClientCert", "RequireAndVerifyClientCert"])
async def test_a_certificate_that_is_not_valid_now_is_a_failure(
    tmp_path: Path, row: tuple[datetime.datetime, datetime.datetime, str, str], client: str
) -> None:
    begins, ends, observed, fix = row
    leaf = authority("server").issue_cert("localhost", not_before=begins, not_after=ends)
    more = () if client == "NoClientCert" else ("client_ca_file: tls.crt",)
    path = config(tmp_path, leaf, f"client_auth_type: {client}", *more)
    is_bad(await check_web_config(tmp_path, path), "failure", observed, fix)


BROKEN_FILES = [
    ("web.yml", None, "there is no such file"),
    ("web.yml", "tls_server_config: [", "not valid YAML"),
    ("tls.crt", None, "tls.crt: no such file"),
    ("tls.crt", "nonsense", "cert_file"),
    ("tls.key", None, "tls.key: no such file"),
    ("tls.key", "nonsense", "key_file"),
]


@pytest.mark.parametrize(("name", "text", "observed"), BROKEN_FILES)
async def test_a_web_config_that_podgpu_cannot_load_is_a_failure(
    tmp_path: Path, name: str, text: str | None, observed: str
) -> None:
    path = config(tmp_path, certificate("server", "localhost"))
    (tmp_path / name).unlink()
    if text is not None:
        write(tmp_path / name, text)
    finding = await check_web_config(tmp_path, path)
    is_bad(finding, "failure", observed, "podgpu check reports the same")


@pytest.mark.parametrize("versions", [("TLS12", "TLS12"), ("TLS12", "TLS13"), ("TLS13", "TLS13")])
def test_the_certificate_is_read_with_each_tls_version(
    tmp_path: Path, versions: tuple[str, str]
) -> None:
    lines = [f"min_version: {versions[0]}", f"max_version: {versions[1]}"]
    identity = read_identity(config(tmp_path, certificate("server", "localhost"), *lines))
    assert identity is not None
    assert identity.validity is not None
    assert not identity.requires_client_certificate


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


async def check_port(folder: Path, running: Web, configured: Web) -> Finding:
    """Check the port of a running podgpu, with the web configuration of this one or another."""
    async with running.serving() as web:
        text = f'sinks: {{m: {{kind: prometheus, listen: "127.0.0.1:{web.port}"}}}}\n'
        ctx = context_with(folder, configured.path, f"node: '{NODE}'\n{text}")
        return of(await listen_ports.examine(ctx), "http.port")


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
async def test_podgpu_is_identified_though_it_requires_a_client_certificate(
    tmp_path: Path, kind: str
) -> None:
    web = secured(tmp_path / "web", kind, certificate("server", "127.0.0.1"))
    finding = await check_port(tmp_path, web, web)
    assert finding.verdict is Verdict.OK, finding
    assert "podgpu" in finding.observed


async def test_another_server_that_requires_a_client_certificate_is_a_failure(
    tmp_path: Path,
) -> None:
    kind = TYPES[0]
    one = secured(tmp_path / "one", kind, certificate("server", "127.0.0.1"))
    other = secured(tmp_path / "other", kind, certificate("server", "127.0.0.1", serial=2))
    is_bad(
        await check_port(tmp_path, one, other),
        "failure",
        "requires a client certificate",
        "another listen",
    )


async def test_a_server_that_shows_its_certificate_too_late_is_skipped(tmp_path: Path) -> None:
    """With TLS 1.2, a server that requires a client certificate ends the handshake before."""
    web = secured(tmp_path / "web", TYPES[0], certificate("server", "127.0.0.1"))
    web.secure(f"client_auth_type: {TYPES[0]}", "client_ca_file: ca.crt", "max_version: TLS12")
    finding = await check_port(tmp_path, web, web)
    assert finding.verdict is Verdict.SKIPPED, finding
    assert "cannot be identified" in finding.observed
