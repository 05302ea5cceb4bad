"""Groups of owners that are no pods: jobs of Slurm, and containers of Docker or Podman."""

import pytest

from pipeline.ledger.reports import GroupBy, Prices, build_report
from pipeline.ledger.reports.groups import group_keys
from pipeline.model import PartialRef, container_uid, job_uid
from pipeline.model.ledger_usage import ContainerIdentity
from tests.pipeline.ledger.reports.windows import identity, usage_row, window

NONE = (None, None, None, None, None)


def job(
    job_id: str, user: str = "", *, cluster: str = "hpc", start_s: int = 1, **facts: str
) -> ContainerIdentity:
    labels = facts | ({"user": user} if user else {})
    return ContainerIdentity(
        PartialRef(cluster, job_id, uid=job_uid(cluster, job_id, start_s)),
        "User" if user else "",
        user,
        tuple(sorted(labels.items())),
    )


def box(name: str, project: str = "", **facts: str) -> ContainerIdentity:
    return ContainerIdentity(
        PartialRef(pod=name, uid=container_uid("docker", "ab" * 32)),
        "ComposeProject" if project else "",
        project,
        tuple(sorted(facts.items())),
    )


OWNERS = (
    job("123", "alice", account="physics", partition="gpu", job_name="train"),
    job("124", "alice", account="physics", partition="long"),
    job("125", account="art"),
    box("web", "shop", image="vllm:1"),
    box("tool"),
    # Labels of a pod with the same keys are no facts of a job or of an image.
    identity("p", "ml", user="bob", image="x", account="y"),
)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("namespace", {"(none)": 5, "ml": 1}),
        (
            "pod",
            {
                "job 123": 1,
                "job 124": 1,
                "job 125": 1,
                "container web": 1,
                "container tool": 1,
                "ml/p": 1,
            },
        ),
        (
            "workload",
            {
                "User/alice": 2,
                "SlurmJob/125": 1,
                "ComposeProject/shop": 1,
                "Container/tool": 1,
                "ml/Pod/p": 1,
            },
        ),
        ("job", {"123 train (alice)": 1, "124 (alice)": 1, "125": 1, "(none)": 3}),
        ("user", {"alice": 2, "(none)": 4}),
        ("account", {"physics": 2, "art": 1, "(none)": 3}),
        ("partition", {"gpu": 1, "long": 1, "(none)": 4}),
        ("image", {"vllm:1": 1, "(none)": 5}),
        ("label:user", {"alice": 2, "bob": 1, "(none)": 3}),
    ],
)
def test_jobs_and_containers_are_grouped_by_their_facts(by: str, expected: dict[str, int]) -> None:
    rows = [usage_row("GPU-0", owner, 1, 1, 1) for owner in OWNERS]
    report = build_report(window(rows), GroupBy.parse(by), Prices())
    assert {row.key.name: row.holdings for row in report.rows if row.key} == expected


@pytest.mark.parametrize(
    ("first", "second", "by", "expected"),
    [
        # What became known of a job later applies to all of its usage.
        (job("1"), job("1", "al", job_name="n"), "job", ["1 n (al)"]),
        (job("1"), job("1", "al"), "user", ["al"]),
        # A job that is requeued, or of another Slurm cluster, is another job.
        (
            job("1", "al"),
            job("1", "al", start_s=2),
            "job",
            ["1 (al) (uid slurm://hpc/1/1)", "1 (al) (uid slurm://hpc/1/2)"],
        ),
        (
            job("1"),
            job("1", cluster="z"),
            "job",
            ["1 (uid slurm://hpc/1/1)", "1 (uid slurm://z/1/1)"],
        ),
        (
            job("1"),
            job("1", start_s=2),
            "pod",
            ["job 1 (uid slurm://hpc/1/1)", "job 1 (uid slurm://hpc/1/2)"],
        ),
        # A job in the Slurm cluster `ml` is not in the namespace `ml`.
        (job("1", cluster="ml"), identity("p", "ml"), "namespace", ["(none)", "ml"]),
        (job("1", "al"), job("1", "al", cluster="z"), "workload", ["User/al"]),
        # The name of a job is not known.
        (
            ContainerIdentity(PartialRef(uid=job_uid("hpc", "1", 1))),
            job("2"),
            "job",
            ["2", "uid slurm://hpc/1/1"],
        ),
    ],
)  # fmt: skip
def test_a_job_is_identified_by_its_cluster_id_and_start(
    first: ContainerIdentity, second: ContainerIdentity, by: str, expected: list[str]
) -> None:
    rows = [usage_row("GPU-0", one, 1, 1, 1) for one in (first, second)]
    report = build_report(window(rows), GroupBy.parse(by), Prices())
    assert [row.key.name for row in report.rows if row.key] == expected


@pytest.mark.parametrize(
    ("by", "parts", "expected"),
    [
        (
            "job",
            [("east", "hpc", "1", "n", "al", "u"), ("west", "hpc", "1", "n", "al", "u")],
            ["1 n (al) in east", "1 n (al) in west"],
        ),
        # A job on several nodes.
        (
            "pod",
            [("east", node, None, "1", "slurm://hpc/1/1") for node in ("n1", "n2")],
            ["job 1 on n1, east", "job 1 on n2, east"],
        ),
        ("job", [(None, *NONE)], ["(none)"]),
    ],
)
def test_jobs_of_several_nodes_have_unique_names(
    by: str, parts: list[tuple[str | None, ...]], expected: list[str]
) -> None:
    fleet = GroupBy(GroupBy.parse(by).kind, several_nodes=True)
    assert all(len(each) == len(fleet.fields) for each in parts)
    assert [key.name for key in group_keys(fleet, parts, ())] == expected
