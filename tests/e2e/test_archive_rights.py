"""The S3 policies of docs/archive.md, as users of a server that enforces them: what they allow is
sufficient, and the rest is refused with the name of the missing right."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.archive.object_store import ObjectStore
from pipeline.base.errors import PermanentError
from pipeline.ledger.schema import HOUR_NS
from podgpu.cli.commands import run_command
from tests.docs.pages import DOCS, blocks
from tests.e2e.s3_server import BUCKET, S3Server, serving
from tests.e2e.s3_users import S3Users, serving_users
from tests.pipeline.ledger.archive_world import World

NODE_POLICY, COMPACTION_POLICY = [
    text for text in blocks(DOCS / "archive.md", "json") if '"s3:' in text
]
PREFIX = "all/gpus"
LOCATION = f"s3://{BUCKET}/{PREFIX}"
OWN, OTHER = "v1/nodes/east/node-1", "v1/nodes/east/node-2"
HELP = "docs/archive.md#credentials-that-can-only-write"

Capsys = pytest.CaptureFixture[str]
Login = Callable[[str], None]


def policy(text: str, node: str = "node-1") -> str:
    """Return a policy of the page with the names that a reader has to replace."""
    names = {"BUCKET": BUCKET, "PREFIX": PREFIX, "CLUSTER": "east", "NODE": node}
    for name, value in names.items():
        text = text.replace(name, value)
    return text


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Users]:
    with serving_users(tmp_path_factory.mktemp("users")) as one:
        yield one


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory, users: S3Users) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3"), users=users.socket) as one:
        yield one


@pytest.fixture(scope="module")
def logins(users: S3Users) -> dict[str, dict[str, str]]:
    """Return the credentials of each user by name."""
    changing = ', "s3:PutObject", "s3:DeleteObject"'
    assert changing in COMPACTION_POLICY
    policies = {
        "node": policy(NODE_POLICY),
        "any node": policy(NODE_POLICY, node="*"),
        "compaction": policy(COMPACTION_POLICY),
        "reports": policy(COMPACTION_POLICY.replace(changing, "")),
    }
    return {name: users.add(name.replace(" ", "-"), text) for name, text in policies.items()}


@pytest.fixture
def login(
    s3_server: S3Server, logins: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Login:
    """Use the archive, which is empty at first, as one of the users."""
    shutil.rmtree(s3_server.bucket / PREFIX.partition("/")[0], ignore_errors=True)

    def log_in(name: str) -> None:
        for variable, value in {**s3_server.environment(), **logins[name]}.items():
            monkeypatch.setenv(variable, value)

    log_in("node")
    return log_in


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return a ledger with two hours of usage, three days ago."""
    start_ns = (time.time_ns() // HOUR_NS - 72) * HOUR_NS
    path = tmp_path / "usage.db"
    world = World(path, now_ns=start_ns, latest_ns=start_ns)
    world.usage(0, "train-0", (HOUR_NS // 2, HOUR_NS // 4, 100))
    world.usage(1, "train-0", (HOUR_NS // 3, None, 50))
    world.close()
    return path


def write(ledger: Path, node: str = "node-1") -> int:
    words = ["archive", "--once", "--to", LOCATION, "--cluster", "east", "--node", node]
    return run_command([*words, "--ledger", str(ledger)])


def report(*words: str) -> int:
    return run_command(["usage", *words, "--since", "7d", "--by", "pod", "--format", "csv"])


def test_a_node_writes_and_writes_again(
    login: Login, s3_server: S3Server, ledger: Path, tmp_path: Path
) -> None:
    """A write that was interrupted is repeated: the objects are there already."""
    copy = Path(shutil.copy(ledger, tmp_path / "copy.db"))
    assert write(ledger) == 0
    keys = s3_server.keys(PREFIX)
    assert keys
    assert all(key.startswith(f"{OWN}/") for key in keys)
    assert write(copy) == 0
    assert s3_server.keys(PREFIX) == keys


def test_a_node_writes_a_large_object_in_parts(
    login: Login, s3_server: S3Server, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(20 << 20))
    ObjectStore(LOCATION).put(f"{OWN}/large.parquet", file)
    assert s3_server.keys(PREFIX) == [f"{OWN}/large.parquet"]


@pytest.mark.parametrize("user", ["node", "any node"])
def test_only_the_other_policy_allows_to_write_as_another_node(
    login: Login, s3_server: S3Server, ledger: Path, capsys: Capsys, user: str
) -> None:
    login(user)
    status, error = write(ledger, "node-2"), capsys.readouterr().err
    if user == "any node":
        assert status == 0
        return
    assert status == 2
    assert f"the archive {LOCATION}: cannot write {OTHER}/" in error
    assert 'not authorized to perform: s3:PutObject on resource: "arn:aws:s3:::' in error
    assert HELP in error
    assert f"The rows stay in {ledger}" in error
    assert s3_server.keys(PREFIX) == []


@pytest.mark.parametrize("user", ["node", "any node"])
def test_a_node_cannot_write_to_other_places(login: Login, tmp_path: Path, user: str) -> None:
    login(user)
    (file := tmp_path / "file").write_bytes(b"x")
    for key in ("v1/nodes/west/node-1/x", "v1/clusters/east/x", "v1/nodes/east/x"):
        with pytest.raises(PermanentError, match=f"cannot write {key}: .* perform: s3:PutObject"):
            ObjectStore(LOCATION).put(key, file)


@pytest.mark.parametrize("user", ["node", "any node"])
def test_a_node_can_neither_list_nor_read_nor_delete(
    login: Login, s3_server: S3Server, ledger: Path, capsys: Capsys, user: str
) -> None:
    assert write(ledger) == 0
    login(user)
    keys = s3_server.keys(PREFIX)
    capsys.readouterr()
    for words in (["usage", "--from", LOCATION], ["archive", "compact", LOCATION]):
        status, error = run_command(words), capsys.readouterr().err
        assert status == 2, error
        assert f"the archive {LOCATION}: cannot list v1/nodes: status 403 Forbidden" in error
        assert "not authorized to perform: s3:ListBucket" in error
        assert HELP in error
    store = ObjectStore(LOCATION)
    with pytest.raises(PermanentError, match=f"cannot read {keys[0]}: .* perform: s3:GetObject"):
        store.get(keys, ledger.parent)
    with pytest.raises(PermanentError, match=f"cannot read {keys[0]}: .*lacked the .* privileges"):
        store.exists(keys[0])
    with pytest.raises(
        PermanentError, match=r"cannot delete .* perform: s3:DeleteObject"
    ) as refused:
        store.delete(keys)
    assert HELP in str(refused.value)
    assert s3_server.keys(PREFIX) == keys


def test_compaction_and_reports_have_the_rights_that_they_need(
    login: Login, s3_server: S3Server, ledger: Path, capsys: Capsys
) -> None:
    """A report needs only the rights to list and to read."""
    assert report("--ledger", str(ledger)) == 0
    expected = capsys.readouterr().out
    assert "train-0" in expected
    login("any node")
    for node in ("node-1", "node-2"):
        assert write(ledger, node) == 0

    login("reports")
    assert report("--from", LOCATION) == 0
    raw = capsys.readouterr().out
    assert run_command(["archive", "compact", LOCATION]) == 2
    assert "perform: s3:PutObject" in capsys.readouterr().err

    login("compaction")
    assert run_command(["archive", "compact", LOCATION]) == 0
    assert {key.rpartition("/")[0].rpartition("/")[0] for key in s3_server.keys(PREFIX)} == {
        "v1/clusters/east"
    }
    for user in ("compaction", "reports"):
        login(user)
        capsys.readouterr()
        assert report("--from", LOCATION) == 0
        assert capsys.readouterr().out == raw


def test_compaction_cannot_leave_the_archive(
    login: Login, s3_server: S3Server, tmp_path: Path
) -> None:
    login("compaction")
    (file := tmp_path / "file").write_bytes(b"x")
    other = s3_server.bucket / "all" / "other"
    other.mkdir(parents=True)
    (other / "key").write_bytes(b"x")
    store = ObjectStore(f"s3://{BUCKET}")
    with pytest.raises(PermanentError, match=r"cannot list all/other: .* perform: s3:ListBucket"):
        list(store.keys("all/other"))
    with pytest.raises(PermanentError, match=r"cannot read all/other/key: .* s3:GetObject"):
        store.get(["all/other/key"], tmp_path)
    with pytest.raises(PermanentError, match=r"cannot write all/other/key: .* s3:PutObject"):
        store.put("all/other/key", file)
    with pytest.raises(PermanentError, match=r"cannot delete all/other/key: .* s3:DeleteObject"):
        store.delete(["all/other/key"])
    assert (other / "key").exists()
