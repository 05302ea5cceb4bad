"""NVLink domains: GPUs that reach each other directly, over switches or in a fabric."""

from hypothesis import given, settings

from pipeline.model import TopologyRead
from pipeline.topology.tree_builder import build
from tests.pipeline.topology.layouts import (
    SYS,
    PairAnswer,
    card,
    dgx1,
    four_h100,
    hgx,
    islands,
    pcie,
    read,
    reads,
)
from tests.support.examples import examples


def domains_of(answers: TopologyRead) -> list[tuple[str, int, str]]:
    return [(d.kind, d.mask, d.fabric) for d in build(answers).domains]


def test_known_machines_have_their_nvlink_domains() -> None:
    assert domains_of(dgx1().read) == [("direct", 0xFF, "")]
    assert domains_of(hgx().read) == [("switch", 0xFF, "")]
    assert domains_of(four_h100().read) == [("switch", 0x0F, "")]
    assert domains_of(pcie().read) == []
    assert domains_of(islands().read) == [("direct", 0x55, ""), ("direct", 0xAA, "")]


def test_switches_are_recognised_by_more_links_to_peers_than_a_gpu_has() -> None:
    """Without a fabric manager: three GPUs have twelve links each, and twelve to each other."""
    answers = read([card(n, links=12) for n in range(3)], lambda _i, _j: (SYS, 12, True))
    assert domains_of(answers) == [("switch", 0b111, "")]
    bridged = read([card(n, links=12) for n in range(2)], lambda _i, _j: (SYS, 12, True))
    assert domains_of(bridged) == [("direct", 0b11, "")]


def test_cliques_of_a_fabric_are_separate_domains_with_names() -> None:
    cluster = "b7d4ad3a-0c58-4a4e-9a62-f1d3c0f3a7d1"
    cards = [card(n, links=18, cluster=cluster, clique=n // 2) for n in range(4)]

    def answer(i: int, j: int) -> PairAnswer:
        return SYS, 18 if i // 2 == j // 2 else 0, i // 2 == j // 2

    assert domains_of(read(cards, answer)) == [
        ("fabric", 0b0011, f"{cluster}/0"),
        ("fabric", 0b1100, f"{cluster}/1"),
    ]


def test_a_clique_is_a_domain_if_the_driver_counts_no_links() -> None:
    cards = [card(n, links=None, cluster="c", clique=1) for n in range(3)]
    assert domains_of(read(cards, lambda _i, _j: (SYS, None, None))) == [("fabric", 0b111, "c/1")]
    assert domains_of(read(cards, lambda _i, _j: (SYS, None, False))) == []


def test_a_fabric_of_zeros_has_no_name() -> None:
    zeros = "00000000-0000-0000-0000-000000000000"
    cards = [card(n, links=18, cluster=zeros, clique=0) for n in range(2)]
    assert domains_of(read(cards, lambda _i, _j: (SYS, 18, True))) == [("switch", 0b11, "")]


def test_a_gpu_in_mig_mode_is_in_no_domain() -> None:
    """Its links are still counted, but peers cannot use them."""
    cards = [card(n, links=18, clique=0) for n in range(4)]
    topology = build(read(cards, lambda i, j: (SYS, 18, i != 1 and j != 1)))
    assert [d.mask for d in topology.domains] == [0b1101]
    assert topology.links[0, 1].nvlinks == 0
    assert topology.links[0, 2].nvlinks == 18


def test_gpus_with_an_unknown_number_of_links_are_in_a_domain() -> None:
    cards = [card(n, links=None) for n in range(3)]
    topology = build(read(cards, lambda _i, j: (SYS, None, True if j < 2 else None)))
    assert [d.mask for d in topology.domains] == [0b11]
    assert topology.links[0, 1].nvlinks is None


@settings(max_examples=examples(50))
@given(reads(at_most=10))
def test_domains_are_disjoint_and_split_no_usable_link(answers: TopologyRead) -> None:
    topology = build(answers)
    masks = [d.mask for d in topology.domains]
    assert sum(m.bit_count() for m in masks) == sum(masks).bit_count()
    assert all(m.bit_count() > 1 for m in masks)
    for (i, j), link in topology.links.items():
        if link.nvlinks:
            assert any(m >> i & m >> j & 1 for m in masks)
