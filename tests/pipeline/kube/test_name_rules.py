"""Which keys and which names Kubernetes takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kube.name_rules import is_subdomain, key_problem


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
def test_a_key_that_is_taken(key: str) -> None:
    assert key_problem(key) == ""


@pytest.mark.parametrize(
    ("key", "given_out"),
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
def test_a_key_that_is_refused(key: str, given_out: str) -> None:
    assert given_out in key_problem(key)


@given(
    st.from_regex(r"\A(?:[a-z0-9]{1,9}(?:-[a-z0-9]{1,9})?\.){1,3}test\Z"),
    st.from_regex(r"\A[A-Za-z0-9][-A-Za-z0-9_.]{0,61}[A-Za-z0-9]\Z"),
)
def test_every_domain_may_own_every_name(domain: str, name: str) -> None:
    assert is_subdomain(domain)
    assert key_problem(f"{domain}/{name}") == ""


@pytest.mark.parametrize(
    ("name", "good"),
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
def test_names_of_nodes(name: str, good: bool) -> None:
    assert is_subdomain(name) is good
