"""The comparisons of a run on a whole host, with nvidia-smi's texts and simulated GPUs."""

from collections.abc import Callable
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import pytest

from pipeline.model.bitmask import mask_of
from pipeline.model.topology_tree import Topology
from pipeline.topology.document import document
from pipeline.topology.selection import best
from pipeline.topology.text_views import matrix
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.topologies import hgx as simulated_hgx
from tests.gpu.choices import best_of_all, choices, kinds_of_taken
from tests.gpu.daemon import Daemon
from tests.gpu.podlist_recording import scenes
from tests.gpu.report import Report
from tests.gpu.topology import cells, different, fabrics_of, links_of
from tests.gpu.whole_host import Allotment, Turns, connections
from tests.pipeline.topology.layouts import dgx1, four_h100, hgx, islands, pcie

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
HGX_COLUMNS = [*(f"GPU{n}" for n in range(8)), "NIC0", "NIC1", "CPU Affinity", "NUMA Affinity"]
HGX_TOPO = (
    "\t\x1b[4m"
    + "\t".join([*HGX_COLUMNS, "GPU NUMA ID"])
    + "\x1b[0m\n"
    + "".join(
        f"GPU{row}\t"
        + "\t".join(" X " if row == n else "NV18" for n in range(8))
        + f"\tPXB\tSYS\t{'0-55,112-167' if row < 4 else '56-111,168-223'}\t{row // 4}\t\tN/A\n"
        for row in range(8)
    )
    + "NIC0\t"
    + "\t".join(["PXB"] * 4 + ["SYS"] * 4)
    + "\t X \tSYS\nNIC1\t"
    + "\t".join(["SYS"] * 8)
    + "\tSYS\t X \n"
    + LEGEND
)
MIXED_TOPO = f"""\
\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tPXB\tSYS\tPIX\t0-23,48-71\t0
GPU1\tPIX\t X \tPHB\tSYS\tPXB\t0-23,48-71\t0
GPU2\tPXB\tPHB\t X \tNODE\tNODE\t0-23\t0
GPU3\tSYS\tSYS\tNODE\t X \tSYS\t24-47\t1
mlx5_0\tPIX\tPXB\tNODE\tSYS\t X \t\t
{LEGEND}"""
ONE_TOPO = f"""\
\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \t0-15\t0\t\tN/A
{LEGEND}"""


def mirrored(upper: dict[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    return {**upper, **{(b, a): cell for (a, b), cell in upper.items()}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HGX_TOPO, mirrored(dict.fromkeys(combinations(range(8), 2), "NV18"))),
        (
            MIXED_TOPO,
            mirrored(
                {
                    (0, 1): "PIX",
                    (0, 2): "PXB",
                    (0, 3): "SYS",
                    (1, 2): "PHB",
                    (1, 3): "SYS",
                    (2, 3): "NODE",
                }
            ),
        ),
        (ONE_TOPO, {}),
    ],
    ids=["eight on NVSwitches", "mixed levels and a NIC", "one"],
)
def test_the_matrix_of_nvidia_smi_has_the_pairs_of_gpus(
    text: str, expected: dict[tuple[int, int], str]
) -> None:
    assert cells(text) == expected


def nvlink(counts: list[int]) -> str:
    return "".join(
        f"GPU {at}: NVIDIA H200 (UUID: GPU-{at})\n"
        + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(count))
        + "\t Link 17: <inactive>\n" * (count < 18)
        for at, count in enumerate(counts)
    )


def query(fabrics: list[tuple[str, str]]) -> str:
    return "==============NVSMI LOG==============\n\nAttached GPUs : 8\n" + "".join(
        f"GPU 00000000:{at + 1:02X}:00.0\n"
        "    Product Name                          : NVIDIA H200\n"
        "    Fabric\n"
        "        State                             : Completed\n"
        f"        CliqueId                          : {clique}\n"
        f"        ClusterUUID                       : {cluster}\n"
        for at, (clique, cluster) in enumerate(fabrics)
    )


NO_NAME = "00000000-0000-0000-0000-000000000000"
NAMED = "5C3A7A4E-0b1d-4f6e-9a52-2f1d7c0e8b31"


def test_inactive_nvlinks_do_not_count() -> None:
    assert links_of(nvlink([18, 12, 0])) == {0: 18, 1: 12, 2: 0}


def test_a_fabric_has_a_clique_and_a_cluster_or_neither() -> None:
    text = query([("0", NO_NAME), ("7", NAMED), ("N/A", "N/A")])
    assert fabrics_of(text) == [(0, ""), (7, NAMED.lower()), (None, "")]


def compared(topology: Topology, topo: str, links: list[int], cliques: str) -> list[str]:
    fabrics = [(cliques, NO_NAME)] * len(links)
    return different(topo, nvlink(links), query(fabrics), matrix(topology), document(topology))


def test_equal_connections_have_no_difference() -> None:
    assert compared(hgx(8), HGX_TOPO, [18] * 8, "0") == []
    assert compared(four_h100(), matrix(four_h100()), [18] * 4, "0") == []
    assert compared(dgx1(), matrix(dgx1()), [6] * 8, "N/A") == []


@pytest.mark.parametrize(
    ("topo", "links", "clique", "message"),
    [
        (
            HGX_TOPO.replace("GPU2\tNV18", "GPU2\tSYS"),
            [18] * 8,
            "0",
            "GPU 2 and 0: SYS in nvidia-smi, NV18 in podgpu",
        ),
        (ONE_TOPO, [18] * 8, "0", "GPU 0 and 1: missing in nvidia-smi, NV18 in podgpu"),
        (HGX_TOPO, [18] * 7 + [17], "0", "GPU 7: 17 NVLinks in nvidia-smi, 18 in podgpu"),
        (HGX_TOPO, [18] * 8, "1", "GPU 0: fabric (1, '') in nvidia-smi, (0, '') in podgpu"),
    ],
    ids=["level", "missing GPUs", "links", "fabric"],
)
def test_each_difference_is_shown(topo: str, links: list[int], clique: str, message: str) -> None:
    assert message in compared(hgx(8), topo, links, clique)


def test_nvlinks_between_gpus_of_no_group_are_reported() -> None:
    alone = document(hgx(8)) | {"nvlink": [{"kind": "fabric", "mask": "7f"}]}
    found = different(
        HGX_TOPO, nvlink([18] * 8), query([("0", NO_NAME)] * 8), matrix(hgx(8)), alone
    )
    assert len(found) == 2
    assert all("GPUs of no NVLink group: [(0, 7), " in one for one in found)


@pytest.mark.parametrize(
    ("layout", "count", "expected"),
    [
        (four_h100, 2, [(0, 1)]),
        # By the number of taken GPUs at the first of two sockets: 4, 3, 2; 1 and 0 are mirrored.
        (hgx, 4, [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 4, 5)]),
        (hgx, 1, [(0,)]),
        (
            pcie,
            2,
            [(0, 1), (0, 2), (0, 4)],
        ),
    ],
)
def test_sets_of_taken_gpus_of_one_kind_are_tried_once(
    layout: Callable[[], Topology], count: int, expected: list[tuple[int, ...]]
) -> None:
    assert kinds_of_taken(layout(), count) == expected


@pytest.mark.parametrize("layout", [hgx, pcie, dgx1, islands])
def test_sets_of_one_kind_leave_choices_of_equal_score(layout: Callable[[], Topology]) -> None:
    """A set that is left out has the score of one that is tried, for each number of GPUs."""
    topology = layout()

    def scores(taken: tuple[int, ...]) -> tuple[int, ...]:
        free = topology.mask & ~mask_of(taken)
        found = [best(topology, free, n) for n in range(1, 5)]
        return tuple(choice.score for choice in found if choice is not None)

    tried = {scores(taken) for taken in kinds_of_taken(topology, 4)}
    everything = list(combinations(range(8), 4))
    assert len(everything) == comb(8, 4) > len(kinds_of_taken(topology, 4))
    assert {scores(taken) for taken in everything} == tried


def test_a_choice_that_is_not_the_best_is_reported() -> None:
    assert best_of_all([(1, [0]), (2, [2, 3])], dgx1()) == []
    assert best_of_all([(2, [0, 1])], dgx1()) == ["best of 2 is [0, 1], but [2, 3] wanted"]


@pytest.mark.slow
def test_a_daemon_on_eight_simulated_gpus_has_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FakeNvml(simulated_hgx(), tmp_path).env().items():
        monkeypatch.setenv(name, value)
    texts = {
        "topo": HGX_TOPO,
        "nvlink": nvlink([18] * 8),
        "query": query([("N/A", "N/A")] * 8),
    }
    with Daemon(tmp_path / "podgpu", lines=False) as daemon:
        found = connections(daemon, texts, 8)
        assert found["faults"] == []
        assert found["best"] == {1: [0], 2: [0, 1], 4: [0, 1, 2, 3], 8: list(range(8))}
        assert found["nvlink_groups"] == [{"kind": "switch", "mask": "ff"}]
        chosen = choices(daemon, 8)
    assert chosen["faults"] == []
    assert chosen["taken"] == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 4, 5]]
    assert chosen["choices"] == 9


def test_a_step_is_cut_if_too_little_time_is_left(tmp_path: Path) -> None:
    report = Report(tmp_path / "report.json")
    ran: list[str] = []

    def step() -> dict[str, Any]:
        ran.append("step")
        return {}

    Allotment(report, 5).run("fits", 4, 10, step)
    Allotment(report, 5).run("cut", 30, 60, step)
    assert ran == ["step"]
    assert report.figures["cut"]["cut"] == "cut: 5 s were left, and it needs 30 s"
    assert report.conclude() == 0


def test_a_step_that_takes_too_long_fails(tmp_path: Path) -> None:
    report = Report(tmp_path / "report.json")

    def endless() -> dict[str, Any]:
        while True:
            pass

    Allotment(report, 60).run("endless", 0, 0.05, endless)
    assert "TimeoutError: not done after 0 s" in report.figures["endless"]["wrong"]
    assert report.conclude() == 1


@pytest.mark.parametrize(
    ("figures", "times", "reached"),
    [
        ({"floor_1": 1.0, "floor_2": 1.2, "podgpu_1": 1.1, "podgpu_2": 1.3}, 1.091, True),
        ({"floor_1": 1.0, "podgpu_1": 1.2}, 1.2, False),
        ({"podgpu_1": 1.2}, None, None),
    ],
)
def test_the_cost_is_a_multiple_of_the_floor(
    tmp_path: Path, figures: dict[str, float], times: float | None, reached: bool | None
) -> None:
    report = Report(tmp_path / "report.json")
    for name, percent in figures.items():
        report.add(name, lambda percent=percent: {"cpu_percent": percent})  # type: ignore[misc]
    found = Turns(report, Allotment(report, 0), 30).ratios()
    assert (found["times_floor"]["podgpu"], found["reached"]) == (times, reached)
    assert found["times_floor"]["nvitop_exporter"] is None


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_recording_has_pods_on_all_some_and_parts_of_gpus(count: int) -> None:
    gpus = [f"GPU-{n}" for n in range(count)]
    first, second = scenes(gpus)
    assert [pod.gpus for pod in first] == [gpus]
    parts = [pod for pod in second if any("::" in one for one in pod.ids)]
    assert [pod.gpus for pod in parts] == [gpus[-1:], gpus[-1:]]
    some = [pod.gpus for pod in second if pod not in parts]
    assert some == ([gpus[: count // 2]] if count > 1 else [])
