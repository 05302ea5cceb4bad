"""Which annotation keys and node names Kubernetes accepts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.kube.name_rules import is_subdomain, key_problem
from tests.support.examples import examples


@pytest.mark.parametrize(
    "key",
    [
        "podgpu.io/topology",
        "topology",
        "A",
        "9",
        "a-b_c.D9",
        "x" * 63,
        "Example.com/a",
        f"{'a' * 253}/b",
        "notkubernetes.io/topology",
        "kubernetes.io.example.com/topology",
        "kubernetes.io",
    ],
)
def test_a_valid_key_is_accepted(key: str) -> None:
    assert key_problem(key) == ""


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", "1 to 63"),
        ("/topology", "a domain of yours"),
        ("podgpu.io/", "1 to 63"),
        ("a/b/c", "a domain of yours"),
        ("x" * 64, "1 to 63"),
        ("-a", "begin and end"),
        ("a.", "begin and end"),
        ("a b", "1 to 63"),
        ("a\n", "1 to 63"),
        ("ä", "1 to 63"),
        ("under_score.io/a", "a domain of yours"),
        (".io/a", "a domain of yours"),
        ("a..io/a", "a domain of yours"),
        (f"{'a' * 254}/b", "a domain of yours"),
        ("kubernetes.io/topology", "reserved for Kubernetes"),
        ("Kubernetes.IO/topology", "reserved for Kubernetes"),
        ("node.alpha.kubernetes.io/topology", "reserved for Kubernetes"),
        ("k8s.io/topology", "reserved for Kubernetes"),
        ("scheduling.k8s.io/topology", "reserved for Kubernetes"),
    ],
)
def test_an_invalid_key_is_refused_with_the_reason(key: str, expected: str) -> None:
    assert expected in key_problem(key)


@settings(max_examples=examples(50))
@given(
    st.from_regex(r"\A(?:[a-z0-9]{1,3}(?:-[a-z0-9]{1,3})?\.){1,3}test\Z"),
    st.from_regex(r"\A[A-Za-z0-9][-A-Za-z0-9_.]{0,9}[A-Za-z0-9]\Z"),
)
def test_each_valid_domain_and_name_make_a_valid_key(domain: str, name: str) -> None:
    assert is_subdomain(domain)
    assert key_problem(f"{domain}/{name}") == ""


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("node-1", True),
        ("ip-10-0-0-1.ec2.internal", True),
        ("1", True),
        ("Node-1", False),
        ("node_1", False),
        ("node-", False),
        ("a/b", False),
        ("", False),
        ("a" * 254, False),
    ],
)
def test_node_names_are_validated(name: str, is_valid: bool) -> None:
    assert is_subdomain(name) is is_valid
