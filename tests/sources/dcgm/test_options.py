"""What goes together, and what doesn't."""

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sources.dcgm.options import Options

FILE = "sources: {{page: {{kind: dcgm, {}}}}}\nsinks: {{lines: {{kind: jsonl}}}}"
URL = 'url: "http://localhost:9400/metrics"'
TLS = 'url: "https://localhost:9400/metrics"'


def load(options: str) -> Options:
    config = parse(FILE.format(options), RegisteredKinds(), env={}, origin="test")
    found = config.sources["page"].options
    assert isinstance(found, Options)
    return found


@pytest.mark.parametrize(
    "options",
    [
        URL,
        TLS,
        "path: /var/lib/node_exporter/dcgm.prom",
        "path: /x.prom, max_age: 5m",
        'url: "http://[::1]:9400/metrics?x=y"',
        f"{TLS}, ca_file: /ca.pem, username: a, password_file: /p",
        f"{TLS}, insecure: true, bearer_token_file: /t",
    ],
)
def test_good(options: str) -> None:
    load(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("interval: 5s", "give a url, or the path of a file"),
        (f"{URL}, path: /x.prom", "give one of the two"),
        ("url: localhost:9400", "is no address: write for example http://"),
        ('url: "http://:9400/metrics"', "is no address"),
        ('url: "http://a b/metrics"', "is no address"),
        ('url: "http://a:70000/metrics"', "is no address"),
        ('url: "ftp://a/metrics"', "is no address"),
        ('url: "http://[::1/metrics"', "is no address"),
        ('url: "http://eve:secret@a/metrics"', "give username and password_file"),
        (f"{URL}, max_age: 5m", "is about a file"),
        ("path: /x.prom, ca_file: /ca.pem", "is about a url"),
        ("path: /x.prom, insecure: true", "is about a url"),
        (f"{URL}, username: a", "go together: give both"),
        (f"{URL}, password_file: /p", "go together: give both"),
        (f"{URL}, username: a, password_file: /p, bearer_token_file: /t", "give one of the two"),
        (f"{URL}, insecure: true", "write https"),
        (f"{URL}, ca_file: /ca.pem", "write https"),
        (f"{URL}, interval: 500ms", "interval"),
    ],
)
def test_bad(options: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(options)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [("", 60), (", interval: 10s", 60), (", interval: 1m", 180), (", max_age: 5s", 5)],
)
def test_when_a_file_is_too_old(options: str, seconds: float) -> None:
    assert load(f"path: /x.prom{options}").oldest == seconds
