"""The format and compression of a response for the `Accept` headers of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.exposition.text_format import Format
from sinks.prometheus.content_negotiation import choose, takes_gzip

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "text"),
        ("", "text"),
        ("*/*", "text"),
        ("text/*", "text"),
        ("application/*", "openmetrics"),
        (PROMETHEUS_2, "openmetrics"),
        (PROMETHEUS_3, "openmetrics"),
        (BROWSER, "text"),
        ("application/openmetrics-text", "openmetrics"),
        ('application/openmetrics-text; version="1.0.0"', "openmetrics"),
        ("application/openmetrics-text; version=0.0.1", "text"),
        ("application/openmetrics-text; version=2.0.0", "text"),
        ("APPLICATION/OpenMetrics-Text;Version=1.0.0", "openmetrics"),
        ("text/plain;q=0.4,application/openmetrics-text;q=0.5", "openmetrics"),
        ("application/openmetrics-text;q=0.4,text/plain;q=0.5", "text"),
        ("application/openmetrics-text,text/plain", "openmetrics"),
        ("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0", "text"),
        ("application/openmetrics-text;q=0,*/*", "text"),
        ("text/plain;q=0,*/*;q=0.1", "openmetrics"),
        ("text/plain;q=0,application/openmetrics-text;q=0", "text"),
        ("application/vnd.google.protobuf;encoding=delimited", "text"),
        ("application/openmetrics-text;q=nan", "text"),
        ("application/openmetrics-text;q=", "text"),
        ("application/openmetrics-text;q=.9,text/plain;q=0.8", "openmetrics"),
    ],
)
def test_the_accept_header_selects_the_format(accept: str | None, form: str) -> None:
    assert choose(accept)[0] is Format[form.upper()]


def test_the_content_type_names_the_escaping_if_it_was_requested() -> None:
    assert choose(PROMETHEUS_3)[1] == (
        "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
    )
    assert choose(PROMETHEUS_2)[1] == ("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert choose(None)[1] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("header", "gzip"),
    [
        (None, False),
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("identity", False),
        ("identity;q=1, gzip;q=0.5", False),
        ("identity;q=0.5, gzip;q=1", True),
        ("br, zstd", False),
        ("gzip;q=bogus", False),
    ],
)
def test_the_accept_encoding_header_selects_gzip(header: str | None, gzip: bool) -> None:
    assert takes_gzip(header) is gzip


TOKENS = st.sampled_from(
    [
        *(",", ";", "=", "q", "/", "*", '"', " ", "0.5", "1e9", "nan", "version", "1.0.0"),
        *("text/plain", "gzip", "identity", "escaping", "application/openmetrics-text", "\\"),
    ]
)
HEADERS = st.one_of(st.text(max_size=200), st.lists(TOKENS, max_size=60).map("".join))


@given(HEADERS)
def test_any_header_is_accepted_without_an_error(header: str) -> None:
    assert choose(header)[1].startswith(("text/plain", "application/openmetrics-text"))
    assert takes_gzip(header) in {True, False}


def test_a_huge_header_is_parsed() -> None:
    assert choose("text/plain;q=0.1," * 100_000)[0] is Format.TEXT
