"""`podgpu usage` about jobs and containers without pods: from a ledger file, and with `--from`."""

import csv
import io
import json
from pathlib import Path
from typing import Final

import pytest

from pipeline.archive.object_store import ObjectStore
from pipeline.ledger.schema import HOUR_NS
from tests.pipeline.archive.report.fleet import NOON, LedgerNode, compact_all
from tests.podgpu.cli.usage.usage_command import run

Capsys = pytest.CaptureFixture[str]

ALICE: Final = {"user": "alice", "account": "physics", "partition": "gpu", "job_name": "train"}
HOLDERS: Final[tuple[tuple[str, str, str, dict[str, str], float], ...]] = (
    # Node, owner, workload, facts, hours. The job 123 runs on both nodes.
    ("n1", "123", "alice", ALICE, 8),
    ("n2", "123", "alice", ALICE, 4),
    ("n2", "124", "bob", {"user": "bob", "account": "art"}, 2),
    ("n1", "boxer", "shop", {"image": "vllm:1"}, 1),
    ("n1", "a", "", {}, 0.5),
)
SPAN: Final = ("--since", "2027-01-01", "--until", "2027-02-01")


@pytest.fixture(scope="module")
def locations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, ...]]:
    """Return the arguments that name the sources: an archive, its ledger files, one ledger."""
    folder = tmp_path_factory.mktemp("owners")
    (location := folder / "archive").mkdir()
    (work := folder / "work").mkdir()
    store = ObjectStore(str(location))
    files: list[Path] = []
    for name in ("n1", "n2"):
        node = LedgerNode(name, folder, slurm="hpc")
        for at, owner, workload, facts, hours in HOLDERS:
            if at == name:
                subject = node.subject(owner)
                held = round(hours * HOUR_NS)
                node.use(NOON, subject, (held, held, 1000))
                node.describe(subject, workload, facts)
                node.hold(owner, NOON * HOUR_NS, NOON * HOUR_NS + held)
        node.now_ns += 48 * HOUR_NS
        node.archive(store, work)
        node.close()
        files.append(node.path)
    compact_all(store, work)
    of_files = tuple(word for file in files for word in ("--from", file))
    return {"archive": ("--from", location), "files": of_files, "node": ("--ledger", files[0])}


FLEET: Final[dict[str, dict[str, float]]] = {
    "job": {"123 train (alice)": 12, "124 (bob)": 2, "(none)": 1.5},
    "user": {"alice": 12, "bob": 2, "(none)": 1.5},
    "account": {"physics": 12, "art": 2, "(none)": 1.5},
    "partition": {"gpu": 12, "(none)": 3.5},
    "image": {"vllm:1": 1, "(none)": 14.5},
    "namespace": {"(none)": 15, "ml": 0.5},
    "workload": {"User/alice": 12, "User/bob": 2, "ComposeProject/shop": 1, "ml/Pod/a": 0.5},
}
NODE: Final[dict[str, dict[str, float]]] = {
    "job": {"123 train (alice)": 8, "(none)": 1.5},
    "user": {"alice": 8, "(none)": 1.5},
    "image": {"vllm:1": 1, "(none)": 8.5},
    "pod": {"job 123": 8, "container boxer": 1, "ml/a": 0.5},
}


@pytest.mark.parametrize(
    ("source", "by", "expected"),
    [
        *(("archive", by, expected) for by, expected in FLEET.items()),
        *(("files", by, expected) for by, expected in FLEET.items()),
        *(("node", by, expected) for by, expected in NODE.items()),
    ],
)
def test_each_group_has_its_held_time(
    locations: dict[str, tuple[object, ...]],
    capsys: Capsys,
    source: str,
    by: str,
    expected: dict[str, float],
) -> None:
    code, out, _ = run(capsys, *locations[source], *SPAN, "--by", by)
    table = out.split("\n\n", 1)[1].splitlines()[1:]
    rows = {
        line[: line.index("  ")]: line.split("  ", 1)[1].split()[0]
        for line in table
        if "  " in line
    }
    groups = {name: float(held) for name, held in rows.items() if name in expected}
    assert (code, groups) == (0, expected)
    assert float(rows["(total)"]) == sum(expected.values()), "no other group has held time"


def test_a_job_on_several_nodes_is_one_row_with_its_facts(
    locations: dict[str, tuple[object, ...]], capsys: Capsys
) -> None:
    _, out, _ = run(capsys, *locations["archive"], *SPAN, "--by", "job", "--format", "csv")
    first, second, none, *_ = csv.DictReader(io.StringIO(out))
    names = ("cluster", "slurm_cluster", "job", "job_name", "user", "job_uid")
    assert [first[name] for name in names] == [
        "east", "hpc", "123", "train", "alice", "slurm://hpc/123/1800000000"
    ]  # fmt: skip
    assert (second["job_name"], first["holdings"], second["holdings"]) == ("", "2", "1")
    assert [none[name] for name in names] == [""] * len(names)


@pytest.mark.parametrize(("source", "number"), [("archive", 5), ("node", 3)])
def test_holdings_name_jobs_and_containers(
    locations: dict[str, tuple[object, ...]], capsys: Capsys, source: str, number: int
) -> None:
    words = (*locations[source], *SPAN, "--holdings")
    _, out, _ = run(capsys, *words, "--format", "json")
    found = json.loads(out)["holdings"]
    names = ("holder_kind", "namespace", "pod", "container", "owner_kind", "owner_name")
    assert len(found) == number
    assert {tuple(one[name] for name in names) for one in found} >= {
        ("job", None, "123", None, "User", "alice"),
        ("container", None, "boxer", None, "ComposeProject", "shop"),
        ("pod", "ml", "a", "main", None, None),
    }
    _, out, _ = run(capsys, *words)
    assert all(f"\n{name} " in out for name in ("job 123", "container boxer", "ml/a (main)"))


def test_a_report_by_namespace_without_pods_leads_to_other_groups(
    capsys: Capsys, tmp_path: Path
) -> None:
    node = LedgerNode("n1", tmp_path)
    node.use(NOON, node.subject("7"), (HOUR_NS, 0, 0))
    node.close()
    _, out, _ = run(capsys, "--ledger", node.path, *SPAN)
    assert "only pods are in a namespace: group jobs by job, user, account or partition" in out


@pytest.mark.parametrize(
    ("by", "note"),
    [
        ("image", "no container without a pod held a device"),
        ("job", "no job held a device"),
        ("partition", "no job with a known partition held a device"),
        ("namespace", None),
    ],
)
def test_a_report_without_groups_says_why(
    ledger: Path, capsys: Capsys, by: str, note: str | None
) -> None:
    _, out, _ = run(capsys, "--ledger", ledger, "--by", by)
    if note is None:
        assert "held a device" not in out
    else:
        assert note in out


def test_a_focus_export_has_tags_of_jobs_and_containers(
    locations: dict[str, tuple[object, ...]], capsys: Capsys, tmp_path: Path
) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("currency: EUR\ngpu_hour: [{prices: {2026-01-01: 2.50}}]", encoding="utf-8")
    words = (*locations["archive"], *SPAN, "--format", "focus", "--prices", path)
    code, out, _ = run(capsys, *words)
    rows = csv.DictReader(io.StringIO(out))
    names = ("SubAccountName", "x_WorkloadKind", "x_WorkloadName", "BilledCost")
    found = {
        tuple(row[name] for name in names): {
            name: text for name, text in json.loads(row["Tags"]).items() if name != "podgpu/state"
        }
        for row in rows
        if row["x_UsageState"] == "held"
    }
    assert code == 0
    assert found == {
        ("", "User", "alice", "20"): ALICE
        | {"podgpu/job": "123", "podgpu/node": "n1", "podgpu/workload": "User/alice"},
        ("", "User", "alice", "10"): ALICE
        | {"podgpu/job": "123", "podgpu/node": "n2", "podgpu/workload": "User/alice"},
        ("", "User", "bob", "5"): {
            "user": "bob",
            "account": "art",
            "podgpu/job": "124",
            "podgpu/node": "n2",
            "podgpu/workload": "User/bob",
        },
        ("", "ComposeProject", "shop", "2.5"): {
            "image": "vllm:1",
            "podgpu/node": "n1",
            "podgpu/workload": "ComposeProject/shop",
        },
        ("ml", "Pod", "a", "1.25"): {
            "podgpu/namespace": "ml",
            "podgpu/node": "n1",
            "podgpu/workload": "Pod/a",
        },
    }
