"""What is read of the answers of scontrol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.slurm.job_record import JobRecord, Share, job_record, setting, units_per_gpu
from tests.sources.slurm import recorded
from tests.sources.slurm.recorded import NODE, STARTED


def test_a_job_of_an_array_is_read() -> None:
    text = recorded.job("5").replace("JobId=5", "JobId=5 ArrayJobId=4 ArrayTaskId=7")
    assert job_record(text, "5", NODE) == JobRecord(
        "anna", "chem", "batch", "arr", STARTED, (Share("gpu", 1, (0,)),)
    )


def test_the_answer_for_the_first_task_of_an_array_has_all_tasks() -> None:
    """Its id is that of the array."""
    text = recorded.job("5", "gpu:1(IDX:0)") + recorded.job("4", "gpu:1(IDX:1)")
    assert job_record(text, "4", NODE).shares == (Share("gpu", 1, (1,)),)
    assert job_record(text, "5", NODE).shares == (Share("gpu", 1, (0,)),)
    assert job_record(text, "6", NODE) == JobRecord()


def test_a_text_that_looks_like_another_job_changes_nothing() -> None:
    text = recorded.job("5", name="a\n" + recorded.job("5", user="root(0)"))
    assert job_record(text, "5", NODE) == JobRecord(ambiguous=("JobId",))


def test_what_is_null_stays_unknown() -> None:
    text = recorded.job("5", "", account="(null)", started="Unknown")
    assert job_record(text, "5", NODE) == JobRecord("anna", "", "batch", "arr")


GRES = {
    "gpu:2(IDX:0-1)": [Share("gpu", 2, (0, 1))],
    "gpu:3(IDX:0,2-3)": [Share("gpu", 3, (0, 2, 3))],
    "gpu:a100:1(IDX:3)": [Share("gpu", 1, (3,))],
    "gpu:a100:1(IDX:3),gpu:h100:1(IDX:0)": [Share("gpu", 1, (3,)), Share("gpu", 1, (0,))],
    "shard:2(IDX:0)": [Share("shard", 2, (0,))],
    "mps:25(IDX:1)": [Share("mps", 25, (1,))],
    "nic:1(IDX:0),gpu:1(IDX:2)": [Share("gpu", 1, (2,))],
    "nic:2(CNT:2)": [],
    "": [],
}


@pytest.mark.parametrize(("gres", "shares"), GRES.items(), ids=GRES)
def test_gpus_and_parts_of_gpus_are_read(gres: str, shares: list[Share]) -> None:
    assert list(job_record(recorded.job("5", gres), "5", NODE).shares) == shares


@pytest.mark.parametrize(
    "gres",
    ["gpu:2(CNT:2)", "gpu:1", "gpu:1(IDX:x)", "gpu:1(IDX:3-1)", "gpu:1(IDX:0-99999999)", "mps:1("],
)
def test_an_allocation_in_another_form_is_known_to_be_unknown(gres: str) -> None:
    record = job_record(recorded.job("5", f"gpu:1(IDX:1),{gres}"), "5", NODE)
    assert (record.shares, record.unread) == ((Share("gpu", 1, (1,)),), (gres,))


@pytest.mark.parametrize(
    ("nodes", "node", "contains"),
    [
        ("gpu1", "gpu1", True),
        ("gpu1", "gpu11", False),
        ("gpu[1-3]", "gpu2", True),
        ("gpu[1-3]", "gpu4", False),
        ("gpu[01-03,7]", "gpu02", True),
        ("gpu[01-03,7]", "gpu2", False),
        ("gpu[01-03,7]", "gpu7", True),
        ("login,gpu[1-2]", "login", True),
        ("login,gpu[1-2]", "gpu1", True),
        ("gpu[x]", "gpu1", False),
        ("gpu[1-2]", "gpu", False),
    ],
)
def test_only_the_allocation_on_this_node_counts(nodes: str, node: str, *, contains: bool) -> None:
    record = job_record(recorded.job("5", "gpu:1(IDX:1)", nodes=nodes), "5", node)
    assert (record.shares == (Share("gpu", 1, (1,)),)) is contains


def test_of_several_nodes_that_of_this_node_counts() -> None:
    allocated = (
        "Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)   Nodes=b CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:1)"
    )
    shares = [
        job_record(recorded.job("5", allocated=allocated), "5", n).shares for n in ("a", "b", "c")
    ]
    assert shares == [(Share("gpu", 1, (0,)),), (Share("gpu", 1, (1,)),), ()]


SPOOFS = {
    "name": "x UserId=root(0) GroupId=root(0) MCS_label=N/A ",
    "command": "a UserId=root(0) GroupId=0 Account=gold QOS=(null)",
}


@pytest.mark.parametrize("where", SPOOFS)
def test_a_text_of_the_user_does_not_become_another_user(where: str) -> None:
    record = job_record(recorded.job("5", **{where: SPOOFS[where]}), "5", NODE)
    assert (record.user, record.name) == ("", "")
    assert "user" in record.ambiguous


def test_a_text_of_the_user_does_not_claim_gpus() -> None:
    spoof = "a Nodes=node1 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)"
    record = job_record(recorded.job("5", "", command=spoof), "5", NODE)
    assert (record.shares, record.ambiguous) == ((), ("GRES",))


def test_line_breaks_in_texts_change_nothing() -> None:
    record = job_record(recorded.job("5", name="a\n   UserId=root(0) GroupId=root(0)"), "5", NODE)
    assert record.user == ""
    assert "user" in record.ambiguous


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert job_record(f"JobId=5 {text}", "5", NODE).started_s is None
    units_per_gpu(text)


@pytest.mark.parametrize(
    ("gres", "units"),
    [
        ("gpu:4,shard:16", {"shard": 4}),
        ("gpu:a100:2(S:0-1),gpu:h100:2(S:0),mps:400", {"mps": 100}),
        ("gpu:4,shard:15", {}),
        ("gpu:4", {}),
        ("(null)", {}),
    ],
)
def test_the_shards_of_each_gpu_are_read_from_the_node(gres: str, units: dict[str, int]) -> None:
    text = recorded.NODE_ANSWER.replace("gpu:4,shard:16", gres)
    assert units_per_gpu(text) == units


def test_settings_are_read() -> None:
    assert setting(recorded.CONFIG, "ClusterName") == "lab"
    assert setting(recorded.CONFIG, "PrologFlags") == "Alloc,Contain"
    assert setting("Prolog = (null)\n", "Prolog") == setting("", "Prolog") == ""
