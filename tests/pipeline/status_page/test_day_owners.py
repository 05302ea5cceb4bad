"""The table of the last day names what its rows are: pods, jobs, containers without pods."""

import pytest

from pipeline.status_page.usage_status import MOST_PODS
from tests.pipeline.ledger.reports.windows import GPUS, identity, usage_row, window
from tests.pipeline.status_page.html_reader import page, read, table
from tests.pipeline.status_page.last_days import last_day, status_with

POD = ("ml", "serve", "u-{}")
JOB = ("", "47{:02}", "slurm://lab/47{:02}/1")
CONTAINER = ("", "web-{}", "docker://8d{:02}")
Owner = tuple[str, str, str]


def shown(*owners: Owner) -> list[list[str]]:
    rows = [
        usage_row(GPUS[0], identity(name.format(n), namespace, "", uid.format(n)), 20 - n, 0.5, 1)
        for n, (namespace, name, uid) in enumerate(owners)
    ]
    return table(read(page(status_with(last_day(window(rows))), ())).one("main"), "day")


@pytest.mark.parametrize(
    ("owners", "heading", "first"),
    [
        ([POD], "Pod", "ml/serve"),
        ([JOB], "Job", "job 4700"),
        ([CONTAINER], "Container", "container web-0"),
        ([POD, JOB, CONTAINER], "Owner", "ml/serve"),
        ([JOB, CONTAINER], "Owner", "job 4700"),
    ],
)
def test_the_heading_names_what_the_owners_are(
    owners: list[Owner], heading: str, first: str
) -> None:
    head, row, *_ = shown(*owners)
    assert (head[0], row[0]) == (heading, first)


@pytest.mark.parametrize(
    ("owner", "more", "text"),
    [
        (JOB, 1, "1 other job"),
        (JOB, 2, "2 other jobs"),
        (CONTAINER, 1, "1 other container"),
        (CONTAINER, 2, "2 other containers"),
    ],
)
def test_the_others_are_of_the_same_kind(owner: Owner, more: int, text: str) -> None:
    assert shown(*[owner] * (MOST_PODS + more))[MOST_PODS + 1][0] == text
