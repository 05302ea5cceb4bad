"""Which combinations of options the dcgm source accepts."""

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
def test_valid_options_are_accepted(options: str) -> None:
    load(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("interval: 5s", "set url, or path for a file"),
        (f"{URL}, path: /x.prom", "set only one of them"),
        ("url: localhost:9400", "is not a valid URL: write for example http://"),
        ('url: "http://:9400/metrics"', "is not a valid URL"),
        ('url: "http://a b/metrics"', "is not a valid URL"),
        ('url: "http://a:70000/metrics"', "is not a valid URL"),
        ('url: "ftp://a/metrics"', "is not a valid URL"),
        ('url: "http://[::1/metrics"', "is not a valid URL"),
        ('url: "http://eve:secret@a/metrics"', "set username and password_file"),
        (f"{URL}, max_age: 5m", "applies only to a file"),
        ("path: /x.prom, ca_file: /ca.pem", "applies only to a url"),
        ("path: /x.prom, insecure: true", "applies only to a url"),
        (f"{URL}, username: a", "require each other"),
        (f"{URL}, password_file: /p", "require each other"),
        (f"{URL}, username: a, password_file: /p, bearer_token_file: /t", "set only one of them"),
        (f"{URL}, insecure: true", "write https"),
        (f"{URL}, ca_file: /ca.pem", "write https"),
        (f"{URL}, interval: 500ms", "interval"),
    ],
)
def test_invalid_options_are_refused_with_a_reason(options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(options)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [("", 60), (", interval: 10s", 60), (", interval: 1m", 180), (", max_age: 5s", 5)],
)
def test_the_default_max_age_is_three_intervals_and_at_least_a_minute(
    options: str, seconds: float
) -> None:
    assert load(f"path: /x.prom{options}").max_age_seconds == seconds
