"""What is read of the answers of scontrol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.slurm.job_record import (
    JobRecord,
    Share,
    contains,
    is_certain,
    job_record,
    place,
    setting,
    units_per_gpu,
)
from tests.sources.slurm import recorded
from tests.sources.slurm.recorded import NODE, STARTED


def read(text: str, node: str = NODE) -> JobRecord:
    """Read an answer about job 5."""
    record = job_record(text, "5", node)
    assert record is not None
    return record


ANNA = JobRecord("anna", "chem", "batch", "arr", STARTED, (Share("gpu", 1, (0,)),))


def test_a_job_of_an_array_is_read() -> None:
    text = recorded.job("5").replace("JobId=5", "JobId=5 ArrayJobId=4 ArrayTaskId=7")
    assert read(text) == ANNA


def test_a_job_of_a_heterogeneous_job_is_read() -> None:
    text = recorded.job("5").replace("JobId=5", "JobId=5 HetJobId=4 HetJobOffset=1")
    assert read(text.replace(" UserId=", " HetJobIdSet=4-5 UserId=")) == ANNA


def test_an_answer_about_another_job_is_not_read() -> None:
    assert job_record(recorded.job("55"), "5", NODE) is None
    assert job_record("", "5", NODE) is None


def test_an_answer_with_several_jobs_is_not_certain() -> None:
    """The first task of an array has the id of the array."""
    assert is_certain(recorded.job("5"))
    assert not is_certain(recorded.job("5") + recorded.job("4"))
    assert not is_certain("")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4 4_1\n5 4_0\n", "4_1"),
        ("4 4\n", "4"),
        ("4 4+0\n5 4+1\n", "4+0"),
        ("14 4_[2-9]\n", ""),
        ("", ""),
    ],
)
def test_the_place_of_a_job_is_read(text: str, found: str) -> None:
    assert place(text, "4") == found


def test_what_is_null_stays_unknown() -> None:
    text = recorded.job("5", "", account="(null)", started="Unknown")
    assert read(text) == JobRecord("anna", "", "batch", "arr")


def test_a_job_that_waits_to_run_again_has_not_started() -> None:
    assert read(recorded.job("5", state="PENDING")).started_s is None
    for state in ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"):
        assert read(recorded.job("5", state=state)).started_s == STARTED


OTHERS_GPUS = "x Nodes=node1 CPU_IDs= Mem= GRES=gpu:3(IDX:1-3)"


def test_a_text_for_the_network_claims_no_gpus() -> None:
    text = recorded.job("5").replace("Network=(null)", f"Network={OTHERS_GPUS}")
    assert read(text) == ANNA
    again = f"x Socks/Node=* {OTHERS_GPUS} MinCPUsNode=1"
    assert read(recorded.job("5").replace("Network=(null)", f"Network={again}")) == ANNA


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("AllocNode:Sid=localhost", f"AllocNode:Sid={OTHERS_GPUS}"),
        ("AllocNode:Sid=localhost", "AllocNode:Sid=x:1 ReqNodeList=(null) MinCPUsNode=1"),
        ("AllocNode:Sid=localhost", "AllocNode:Sid=x:1 ReqNodeList=(null) Socks/Node=* x"),
        (
            "AllocNode:Sid=localhost",
            "AllocNode:Sid=x:1 ReqNodeList=(null) Socks/Node=* MinCPUsNode=1",
        ),
        (" JobState=", " WCKey=x JobState=PENDING y JobState="),
        (" JobState=", f" WCKey={OTHERS_GPUS} JobState="),
    ],
)
def test_an_answer_with_a_space_in_an_earlier_text_is_not_read(before: str, after: str) -> None:
    """It could be the start of any key."""
    assert job_record(recorded.job("5").replace(before, after), "5", NODE) is None


def test_a_workload_key_without_a_space_is_no_hindrance() -> None:
    assert read(recorded.job("5").replace(" JobState=", " WCKey=*lab JobState=")) == ANNA


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
    assert list(read(recorded.job("5", gres)).shares) == shares


@pytest.mark.parametrize(
    "gres",
    ["gpu:2(CNT:2)", "gpu:1", "gpu:1(IDX:x)", "gpu:1(IDX:3-1)", "gpu:1(IDX:0-99999999)", "mps:1("],
)
def test_an_allocation_in_another_form_is_known_to_be_unknown(gres: str) -> None:
    record = read(recorded.job("5", f"gpu:1(IDX:1),{gres}"))
    assert (record.shares, record.unread) == ((Share("gpu", 1, (1,)),), (gres,))


@pytest.mark.parametrize(
    ("nodes", "node", "expected"),
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
        ("gpu[8-10]", "gpu10", True),
        ("gpu[1-100]", "gpu050", False),
        ("gpu[x]", "gpu1", False),
        ("gpu[1-2]-ib", "gpu2-ib", True),
        ("gpu[1-2]-ib", "gpu2", False),
        ("rack[1-2]gpu[3,5]", "rack2gpu5", True),
        ("rack[1-2]gpu[3,5]", "rack2gpu4", False),
        ("gpu.[1-2]", "gpux1", False),
        ("gpu[1-2]", "gpu", False),
    ],
)
def test_only_the_allocation_on_this_node_counts(nodes: str, node: str, *, expected: bool) -> None:
    assert contains(nodes, node) is expected
    record = read(recorded.job("5", "gpu:1(IDX:1)", nodes=nodes), node)
    assert (record.shares == (Share("gpu", 1, (1,)),)) is expected
    assert bool(record.unread) is not expected


def test_of_several_nodes_that_of_this_node_counts() -> None:
    allocated = (
        "Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)   Nodes=b CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:1)"
    )
    text = recorded.job("5", allocated=allocated)
    assert [read(text, node).shares for node in ("a", "b")] == [
        (Share("gpu", 1, (0,)),),
        (Share("gpu", 1, (1,)),),
    ]


def test_gpus_of_a_job_that_runs_here_by_another_name_of_the_node_are_unknown() -> None:
    assert read(recorded.job("5", nodes="a"), "A").unread == ("a:gpu:1(IDX:0)",)
    assert read(recorded.job("5", "", nodes="a"), "A").unread == ()


LIE = (
    " UserId=root(0) GroupId=root(0) MCS_label=N/A Account=gold QOS=(null) JobState=PENDING "
    "StartTime=2020-01-01T00:00:00 EndTime=Unknown Partition=free AllocNode:Sid=x:1 "
    "Nodes=node1 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3) Command="
)
OTHER_JOB = "\n" + recorded.job("5", user="root(0)", account="gold")
LIES = {"keys": LIE, "keys on another line": "\n" + LIE, "another job": OTHER_JOB}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("where", ["name", "command", "comment"])
def test_no_text_of_a_user_changes_what_is_read(where: str, lie: str) -> None:
    """Not even to less: a user could hide a job, or the GPUs that it holds."""
    name = f"x{lie}" if where == "name" else "arr"
    text = recorded.job("5", **{where: f"x{lie}"})
    assert not is_certain(text)
    record = job_record(text, "5", NODE, name)
    assert record == JobRecord("anna", "chem", "batch", name[:256], STARTED, ANNA.shares)


KEYS = (
    *("JobId=5 ", "JobName=", " UserId=root(0) GroupId=", " Account=gold QOS=", " StartTime="),
    *(" EndTime=", " JobState=PENDING ", " Command=", " Nodes=node1 CPU_IDs=0 Mem=0 GRES=gpu:1"),
    *(" HetJobIdSet=4-5", "\n", "\r", "\x85", " ", "(null)", "2020-01-01T00:00:00"),
)
TEXTS = st.lists(st.sampled_from(KEYS) | st.text(max_size=4), max_size=12).map("".join)


@given(name=TEXTS, comment=TEXTS, command=TEXTS)
def test_whatever_a_user_writes_the_rest_is_read(name: str, comment: str, command: str) -> None:
    text = recorded.job("5", name=name, comment=comment, command=command)
    record = job_record(text, "5", NODE, name)
    assert record is not None
    assert (record.user, record.account, record.started_s) == ("anna", "chem", STARTED)
    assert (record.shares, record.unread) == (ANNA.shares, ())
    if is_certain(text):
        assert job_record(text, "5", NODE) == record


def test_an_answer_with_another_name_is_not_read() -> None:
    """The name was changed between the questions."""
    assert job_record(recorded.job("5", name="new"), "5", NODE, "old") is None
    assert job_record(recorded.job("5", name="new"), "5", NODE, "ne") is None


def test_an_account_with_blanks_is_read() -> None:
    """Slurm writes it in lower case."""
    account = "x qos=(null) jobstate=r starttime=2020-01-01t00:00:00 endtime="
    assert read(recorded.job("5", account=account)).account == account


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    record = job_record(f"JobId=5 JobName={text}", "5", NODE)
    assert record is None or record.started_s is None
    units_per_gpu(text)
    contains(text, NODE)


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
