"""An archive on a real S3 server: answers that get lost, two compactions at once, refusals."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.archive.database import Database, open_database
from pipeline.archive.object_selection import fetch_objects
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.raw_object import put_rows
from pipeline.archive.row_columns import Row
from pipeline.archive.row_reading import create_rows
from pipeline.base.errors import PermanentError, TransientError
from tests.e2e.archive_processes import Command, Starter
from tests.e2e.lossy_proxy import LossyProxy, losing
from tests.e2e.s3_server import S3Server, serving
from tests.pipeline.archive.rows import usage_row

LOCATION = "s3://usage/gpus of all"
DAY = str((datetime.now(UTC) - timedelta(days=3)).date())


class Archive:
    """An archive in the empty bucket of a server, and what reads and writes it."""

    def __init__(
        self, server: S3Server, starter: Starter, database: Database, environ: pytest.MonkeyPatch
    ) -> None:
        self.server = server
        self._starter = starter
        self._database = database
        self._environ = environ

    def use(self, port: int | None = None, changed: Mapping[str, str] | None = None) -> None:
        """Let this process use a port of the server or of a proxy, with its credentials."""
        for name, value in {**self.server.environment(port), **(changed or {})}.items():
            self._environ.setenv(name, value)

    def put(self, work: Path, *serials: int) -> str:
        """Write rows, and return the key."""
        rows = [usage_row(serial, day=DAY, held_ns=serial) for serial in serials]
        return self.put_rows(work, *rows)

    def put_rows(self, work: Path, *rows: Row) -> str:
        return str(put_rows(ObjectStore(LOCATION), self._database, rows, work))

    def compact(self, work: Path, port: int | None = None) -> Command:
        """Start a compaction."""
        options = ["archive", "compact", LOCATION, "--older-than", "1h", "--memory", "128MiB"]
        env = self.server.environment(port) | {"TMPDIR": str(work)}
        return Command(self._starter, options, env, work / "podgpu.log")

    def keys(self) -> list[str]:
        """Return the keys of the objects, as the server has them."""
        return self.server.keys("gpus of all")

    def total(self, work: Path) -> tuple[int, int]:
        """Return the number of rows that a reader counts, and the sum of their held time."""
        folder = work / f"copies-{len(list(work.iterdir()))}"
        folder.mkdir()
        create_rows(self._database, fetch_objects(ObjectStore(LOCATION), self._database, folder))
        query = "SELECT count(*), sum(held_ns)::BIGINT FROM archive_rows"
        ((count, held),) = self._database.execute(query)
        return count, held


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3")) as one:
        yield one


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    with closing(Starter()) as one:
        yield one


@pytest.fixture
def archive(
    server: S3Server, starter: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Archive]:
    for key in server.keys(""):
        (server.bucket / key).unlink()
    with open_database(tmp_path) as database:
        one = Archive(server, starter, database, monkeypatch)
        one.use()
        yield one


@pytest.fixture
def proxy(server: S3Server) -> Iterator[LossyProxy]:
    with losing(server.port) as one:
        yield one


@pytest.mark.timeout(120)
def test_an_object_whose_answer_was_lost_is_put_again_after_the_compaction(
    archive: Archive, proxy: LossyProxy, tmp_path: Path
) -> None:
    archive.put(tmp_path, 1, 2)
    proxy.loses = lambda name: name == "PUT"
    archive.use(proxy.port)
    with pytest.raises(TransientError, match="cannot write v1/nodes/prod/node-1"):
        archive.put(tmp_path, 3, 4)
    assert set(proxy.lost) == {"PUT"}
    archive.use()
    assert len(archive.keys()) == 2
    assert archive.total(tmp_path) == (4, 10)

    assert archive.compact(tmp_path).wait() == 0
    (whole,) = archive.keys()
    assert archive.total(tmp_path) == (4, 10)

    again = archive.put(tmp_path, 3, 4)
    assert archive.keys() == [whole, again]
    assert archive.total(tmp_path) == (4, 10)

    assert archive.compact(tmp_path).wait() == 0
    assert archive.keys() == [whole]
    assert archive.total(tmp_path) == (4, 10)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("lost", ["PUT", "HEAD", "DELETE", "LIST", "GET"])
def test_a_compaction_whose_answers_are_lost_loses_no_rows(
    archive: Archive, proxy: LossyProxy, tmp_path: Path, lost: str
) -> None:
    archive.put(tmp_path, 1, 2)
    archive.put(tmp_path, 3, 4)
    proxy.loses = lambda name: name == lost
    assert archive.compact(tmp_path, proxy.port).wait() == 1
    assert set(proxy.lost) == {lost}
    assert archive.total(tmp_path) == (4, 10)
    archive.put(tmp_path, 5)
    assert archive.compact(tmp_path).wait() == 0
    assert len(archive.keys()) == 1
    assert archive.total(tmp_path) == (5, 15)


@pytest.mark.timeout(120)
def test_several_compactions_at_once(archive: Archive, tmp_path: Path) -> None:
    for first in range(1, 61, 3):
        archive.put(tmp_path, first, first + 1, first + 2)
    running = [archive.compact(tmp_path) for _ in range(4)]
    archive.put(tmp_path, 61)
    assert all(command.wait() in (0, 1) for command in running)
    assert archive.total(tmp_path) == (61, 61 * 62 // 2)
    assert archive.compact(tmp_path).wait() == 0
    assert len(archive.keys()) == 1
    assert archive.total(tmp_path) == (61, 61 * 62 // 2)


def test_names_with_any_characters(archive: Archive, tmp_path: Path) -> None:
    row = usage_row(1, cluster="a/b %2F", node="..", day=DAY, held_ns=7)
    key = archive.put_rows(tmp_path, row)
    assert list(ObjectStore(LOCATION).keys("v1")) == [key]
    assert archive.total(tmp_path) == (1, 7)


def test_a_large_object_is_written_in_parts(
    archive: Archive, proxy: LossyProxy, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(range(256)) * (20 << 12))
    names: list[str] = []
    proxy.before = names.append
    archive.use(proxy.port)
    store = ObjectStore(LOCATION)
    store.put("v1/large.parquet", file)
    assert names.count("PUT") == 3
    found = store.get(["v1/large.parquet"], tmp_path)
    assert found["v1/large.parquet"].read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("location", "changed", "error"),
    [
        ("s3://missing/x", {}, "status 404 Not Found: NoSuchBucket"),
        (LOCATION, {"AWS_SECRET_ACCESS_KEY": "wrong"}, "status 403 Forbidden: SignatureDoesNot"),
    ],
)
def test_a_refusal_is_permanent_and_names_the_place(
    archive: Archive, tmp_path: Path, location: str, changed: dict[str, str], error: str
) -> None:
    archive.use(changed=changed)
    store = ObjectStore(location)
    file = tmp_path / "file"
    file.write_bytes(b"x")
    with pytest.raises(PermanentError, match=f"the archive {location}: cannot list v1: {error}"):
        list(store.keys("v1"))
    with pytest.raises(PermanentError, match=f"the archive {location}: cannot write v1/a: {error}"):
        store.put("v1/a", file)


@pytest.mark.timeout(120)
def test_a_server_that_is_down_is_a_transient_error(archive: Archive, tmp_path: Path) -> None:
    archive.server.kill()
    try:
        with pytest.raises(TransientError, match="cannot list v1"):
            list(ObjectStore(LOCATION).keys("v1"))
        assert archive.compact(tmp_path).wait() == 1
        assert "podgpu: the archive s3://usage/gpus of all: cannot list v1/nodes: " in (
            (tmp_path / "podgpu.log").read_text()
        )
    finally:
        archive.server.start()
