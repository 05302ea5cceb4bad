"""R12: tests of the host names that a request may have, and of messages about refused ones."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.http.allowed_hosts import Hosts
from tests.support.examples import examples

OWN = ("gpu-7", "node-7.example.net")
SETTING = "http.allowed_hosts"


def hosts(*patterns: str) -> Hosts:
    hosts = Hosts()
    hosts.allow(OWN, patterns)
    return hosts


ALLOWED = [
    "127.0.0.1",
    "10.1.2.3:9400",
    "[::1]",
    "[2001:db8::1]:9400",
    "::1",
    "localhost",
    "LOCALHOST:9400",
    "localhost.",
    "podgpu",
    "PodGPU:9400",
    "podgpu_1",
    "podgpu.monitoring.svc",
    "podgpu.monitoring.svc.",
    "podgpu.monitoring.svc.cluster.local:9400",
    "10-1-2-3.monitoring.pod.cluster.local",
    "gpu-7",
    "GPU-7.example.com:9400",
    "gpu-7.a.b.example.com.",
    "node-7.example.net",
    "Node-7.Example.Net.:9400",
    "",
    ":9400",
    " podgpu ",
]
REFUSED = [
    "evil.example.com",
    "evil.example.com:9400",
    "EVIL.example.com.",
    "127.0.0.1.example.com",
    "localhost.example.com",
    "svc.example.com",
    "podgpu.monitoring",
    "xsvc.evil",
    "evil.cluster.local.example.com",
    "cluster.local.",
    "evilcluster.local",
    "gpu-70.example.com",
    "example.net",
    "evil.node-7.example.net",
    "127.1",
    "user@localhost",
    "a b",
    "a..b",
    ".svc",
    "xn--caf-dma.example",
    "café",
    "a" * 64,
    "localhost:1:2",
    "[::1",
    "[localhost]x.evil.example",
]


@pytest.mark.parametrize("host", ALLOWED)
def test_r12_a_host_that_is_allowed_without_a_setting(host: str) -> None:
    assert hosts().refusal([host]) is None


@pytest.mark.parametrize("host", REFUSED)
def test_r12_other_hosts_are_refused_and_the_message_names_the_setting(host: str) -> None:
    message = hosts().refusal([host])
    assert message is not None
    assert SETTING in message


@pytest.mark.parametrize(
    ("pattern", "host", "allowed"),
    [
        ("gpus.example.com", "gpus.example.com:9400", True),
        ("GPUs.example.com.", "gpus.EXAMPLE.com.", True),
        ("gpus.example.com", "a.gpus.example.com", False),
        ("gpus.example.com", "xgpus.example.com", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "badexample.com", False),
        ("*.k8s.example", "podgpu.gpu.svc.k8s.example", True),
        ("*", "evil.example.com", True),
        ("*", "a b", True),
    ],
)
def test_r12_a_host_that_the_setting_allows(pattern: str, host: str, allowed: bool) -> None:
    assert (hosts(pattern).refusal([host]) is None) is allowed
    assert hosts(pattern).refusal(["localhost"]) is None, "hosts that need no setting stay allowed"


def test_r12_all_hosts_of_a_request_must_be_allowed() -> None:
    known = hosts()
    assert known.refusal([]) is None
    assert known.refusal(["localhost", "127.0.0.1:9400"]) is None
    assert known.refusal(["localhost", "evil.example.com"]) is not None
    assert known.refusal(["evil.example.com", "localhost"]) is not None


def test_r12_the_host_name_of_a_listen_address_is_allowed_there() -> None:
    known = hosts()
    assert known.refusal(["Metrics.example.com.:9400"], "metrics.example.com") is None
    assert known.refusal(["a.metrics.example.com"], "metrics.example.com") is not None
    assert known.refusal(["metrics.example.com"], "127.0.0.1") is not None


@given(st.text(max_size=80))
def test_r12_no_text_is_an_error_and_a_refusal_is_one_line(host: str) -> None:
    message = hosts().refusal([host])
    assert message is None or (message.isprintable() and len(message) < 1000)


@settings(max_examples=examples(50))
@given(st.from_regex(r"[a-z0-9-]{1,6}(\.[a-z0-9-]{1,6}){1,3}\.(com|net|example)", fullmatch=True))
def test_r12_no_registrable_name_is_allowed_without_a_setting(host: str) -> None:
    if host.partition(".")[0] not in OWN:
        assert hosts().refusal([host]) is not None


def test_r12_the_refusal_of_a_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    known = hosts()
    for host in ("a.example.com", "A.example.com:9400", "a.example.com.", "b.example.com"):
        known.refusal([host])
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert '"a.example.com"' in messages[0]
    assert all(SETTING in text for text in messages)


def test_r12_many_invented_names_do_not_fill_the_log_or_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = hosts()
    for number in range(5000):
        assert known.refusal([f"x{number}.example.com"]) is not None
    assert len(caplog.records) == 33
    assert "does not log them" in caplog.records[-1].getMessage()
    assert len(known._logged) == 33
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    known.allow(OWN, ())
    known.refusal(["x0.example.com"])
    assert len(caplog.records) == 34, "after a change the name is logged again"
