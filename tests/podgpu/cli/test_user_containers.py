"""Containers of users run with podgpu's image: their arguments, variables and web configurations.

The files in `users` have the keys and values of files in public repositories, with other comments.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.errors import ConfigError
from pipeline.http.access.web_config_reader import Rules, WebConfigReader
from tests.podgpu.cli.dcgm_configs import config_of, parsed, value_at
from tests.support.web import authority, certificate, pem

USERS = Path(__file__).parent / "users"


def loaded(name: str) -> Any:
    return yaml.safe_load((USERS / "containers" / f"{name}.yaml").read_text())


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a container of Docker, Docker Compose or Kubernetes."""
    given = container.get("environment", {})
    if isinstance(given, list):
        given = dict(each.split("=", 1) for each in given)
    listed = {each["name"]: each.get("value", "worker-1") for each in container.get("env", [])}
    return {**given, **listed}


PROFILING = "/etc/dcgm-exporter/dcp-metrics-included.csv"

CONTAINERS: dict[str, tuple[dict[str, object], list[str]]] = {
    "agent": (
        {"sources.gpus.interval": "100ms", "sources.kubelet": None},
        ["DCGM_EXPORTER_INTERVAL"],
    ),
    "benchmark": (
        {"counters.file": "/etc/dcgm-exporter/custom.csv", "sources.gpus.interval": "100ms"},
        ["DCGM_EXPORTER_INTERVAL"],
    ),
    "compose": (
        {"counters.file": PROFILING, "sources.gpus.interval": "5s", "sources.kubelet": None},
        [],
    ),
    "daemonset": (
        {
            "counters.file": PROFILING,
            "sources.kubelet.kind": "podresources",
            "sinks.metrics.listen": ":9400",
        },
        [],
    ),
    "device-names": ({"sources.kubelet.kind": "podresources"}, []),
    "operator": (
        {
            "counters.file": "/etc/dcgm-exporter/dcgm-metrics.csv",
            "sources.engine.address": "nvidia-dcgm:5555",
            "sources.kubelet.kind": "podresources",
        },
        [],
    ),
}
"""Settings that result, and a word of each warning."""


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_starts_with_these_settings(name: str) -> None:
    container, (settings, warned) = loaded(name), CONTAINERS[name]
    env = variables(container)
    found = config_of(*container.get("args", ()), **env)
    assert parsed(found, env) == found.config
    assert {place: value_at(found.text, place) for place in settings} == settings
    warnings = [text for level, text in found.remarks if level > logging.INFO]
    assert len(warnings) == len(warned)
    assert all(word in text for word, text in zip(warned, warnings, strict=True))


def test_there_is_a_row_for_each_container() -> None:
    assert {each.stem for each in (USERS / "containers").iterdir()} == CONTAINERS.keys()


def web_rules(folder: Path, name: str) -> Rules:
    """Read a web configuration beside a certificate, its key and an authority of clients."""
    chain, key = pem(certificate("server", "localhost"))
    (folder / "tls.crt").write_bytes(chain)
    (folder / "tls.key").write_bytes(key)
    authority("clients").cert_pem.write_to_path(str(folder / "ca.crt"))
    path = folder / "web.yaml"
    path.write_text((USERS / "web" / f"{name}.yaml").read_text())
    rules = WebConfigReader(path).reload()
    assert rules is not None
    return rules


WEB: dict[str, tuple[bool, bool, list[str]]] = {
    "headers": (True, False, []),
    "mutual-tls": (True, True, []),
    "no-client-certificate": (True, True, ["scraper"]),
    "passwords-only": (False, True, ["scraper"]),
    "suites-and-passwords": (True, True, ["scraper", "viewer"]),
    "tls": (True, False, []),
}
"""Whether a page is served over TLS, whether a client must authenticate, and the users."""

REFUSED = {
    "of-another-program": r"web\.yaml:2:1: web: unknown key",
    "password-in-plain-text": r"scraper: must be a bcrypt hash, as htpasswd -nBC 10 USER makes it",
}


@pytest.mark.parametrize("name", WEB)
def test_a_web_configuration_has_its_effect(tmp_path: Path, name: str) -> None:
    tls, identified, users = WEB[name]
    rules = web_rules(tmp_path, name)
    assert (rules.context is not None, rules.identified) == (tls, identified)
    assert sorted(rules.users) == [user.encode() for user in users]
    assert all("http2" in text for text in rules.warnings)


@pytest.mark.parametrize("name", REFUSED)
def test_a_web_configuration_that_protects_nothing_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        web_rules(tmp_path, name)
    assert re.search(REFUSED[name], str(caught.value))
    assert "examplepassword" not in str(caught.value)


def test_there_is_a_row_for_each_web_configuration() -> None:
    assert {each.stem for each in (USERS / "web").iterdir()} == {*WEB, *REFUSED}
